#!/usr/bin/env bash
# install_test.sh BUILD_DIR THIS_DIR: installs BUILD_DIR into an empty prefix, builds the outside
# project against it with find_package(divisi), looks at every header that took part, and runs it.
set -euo pipefail
build=$1 here=$2
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
for file in bin/ditask include/divisi/task.h lib/libdivisi.so lib/cmake/divisi/divisi-config.cmake \
  lib/cmake/divisi/divisi-config-version.cmake; do
  [[ -e $prefix/$file ]] || { echo "not installed: $file"; exit 1; }
done
if static=$(find "$prefix" -name '*.a' | grep .); then
  echo "installed although it is no one's business: $static"
  exit 1
fi
for program in ditask divisi divisi-report di-orchestrator di-operator di-server; do
  "$prefix/bin/$program" --help >/dev/null || { echo "does not run: $program"; exit 1; }
done

# ./run builds the runtime alone: the same installation where the programs of Kubernetes are not there.
sed -E "s#\"$build/bin/(divisi|divisi-report|ding|di-[a-z]+)\"#\"$build/absent/\1\"#g" "$build/cmake_install.cmake" >"$work/run.cmake"
(($(grep -c "$build/absent/" "$work/run.cmake") >= 4)) || { echo "install rules have changed: mend this test"; exit 1; }
cmake -DCMAKE_INSTALL_PREFIX="$work/after_run" -P "$work/run.cmake" >"$work/install.log" ||
  { echo "cmake --install after ./run:"; cat "$work/install.log"; exit 1; }
[[ $(ls "$work/after_run/bin") == ditask && -e $work/after_run/lib/libdivisi.so ]] ||
  { echo "installed after ./run: $(find "$work/after_run" -type f)"; exit 1; }
"$work/after_run/bin/ditask" --version >/dev/null

cmake -S "$here/outside" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
  >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/build"

# Every public header compiles alone, as strictly as its users like.
for header in "$prefix"/include/divisi/*.h; do
  line="#include \"divisi/${header##*/}\""
  c++ -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -x c++ - <<<"$line" ||
    { echo "does not compile alone: ${header##*/}"; exit 1; }
  echo "$line" >>"$work/all.cc"
done

# They need the prefix, the compiler and the C library: then no -dev package can be missing.
c++ -std=c++20 -M -I"$prefix/include" "$work/all.cc" | tr -s ' \\\n' '\n\n\n' | grep '^/' |
  xargs realpath -e | sort -u | grep -v "^$work/" >"$work/headers"
(($(wc -l <"$work/headers") > 50)) || { echo "too few headers seen: the check itself is broken"; exit 1; }
foreign=$(xargs dpkg-query -S <"$work/headers" 2>&1 |
  grep -vE '^(libc6-dev|linux-libc-dev|libstdc\+\+-[0-9]+-dev|libgcc-[0-9]+-dev)[:,]' || true)
[[ -z $foreign ]] || { echo "the public headers need more than the standard library:"; echo "$foreign"; exit 1; }

output=$("$work/build/outside")
echo "$output"
[[ $output == "outside heard: hello 42" ]]
