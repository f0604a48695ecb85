# Shared by ./run, ./test and scripts/setup. Sourced, not run.

say() { printf '==> %s\n' "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# Thins the output of ninja and ctest for a reader: a progress line at most every few seconds,
# everything else (errors, failing tests) at once.
thin() {
  local line last=-100 held=
  while IFS= read -r line; do
    if [[ $line =~ ^\[[0-9]+/[0-9]+\]\  ]] || [[ $line =~ ^\ *[0-9]+/[0-9]+\ Test\ .*\ Passed\  ]]; then
      held=$line
      if ((SECONDS - last >= 5)); then
        printf '    %s\n' "${line:0:150}"
        last=$SECONDS held=
      fi
    elif [[ $line =~ ^\ *Start\ +[0-9]+: || $line == 'ninja: Entering directory'* || $line == 'ninja: no work'* ]]; then
      :
    else
      [[ -z $held ]] || printf '    %s\n' "${held:0:150}"
      held=
      printf '%s\n' "$line"
    fi
  done
  [[ -z $held ]] || printf '    %s\n' "${held:0:150}"
}

# configure PRESET [-D...]: quiet unless it fails.
configure() {
  local log=build/$1-configure.log
  mkdir -p build
  if ! cmake --preset "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
}

# build PRESET [cmake --build arguments]: gives way to whatever else runs, tests above all.
build() { (set -o pipefail; nice cmake --build --preset "$@" 2>&1 | thin); }
