#!/usr/bin/env bash
# exports_test.sh LIBRARY: libdivisi.so defines names of namespace divisi and nothing else, and needs
# no library that only a -dev package would bring. (__libc_start_main is the door of spawned workers.)
set -euo pipefail
library=$1

# The linker names the library's own version node with an absolute symbol; there is none today.
foreign=$(nm -D --defined-only "$library" | awk '{print $NF}' |
  grep -vE '^(_ZNK?6divisi|_ZT[ISV]N6divisi|_ZGVN6divisi|divisi_|__libc_start_main$)' || true)
if [[ -n $foreign ]]; then
  echo "exported by accident:"
  c++filt <<<"$foreign" | head -40
  exit 1
fi
inside=$(nm -DC --defined-only "$library" | grep -E ' divisi::(mesh|io|json|launch)::' | grep -v 'launch::ditask_main' || true)
if [[ -n $inside ]]; then
  echo "internal modules are visible:"
  head -40 <<<"$inside"
  exit 1
fi
count=$(nm -D --defined-only "$library" | wc -l)
if ((count == 0)); then
  echo "nothing is exported at all"
  exit 1
fi
if missing=$(ldd "$library" | grep 'not found'); then
  echo "$missing"
  exit 1
fi
echo "$count names exported"
