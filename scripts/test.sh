#!/usr/bin/env bash
# Runs the tests, and those that fail once more, alone:
#
#   scripts/test.sh [FLAG...]    flags of go test, for all packages: -tags slow, -run NAME
#
# Package tests run with the race detector; end-to-end tests run the programs as they are shipped, or with the race
# detector where FORGERUN_TEST_RACE=1. A test that fails is run once more by itself, unless more than five failed, a data
# race or a panic was seen, or an invariant of the rows was broken; if it passes then, the run passes and names the test as
# flaky. The end of the output has the slowest tests, the flaky ones and the totals.
#
# It also calls itself, through gotestsum, as "scripts/test.sh events DIR [FLAG...]".
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
GO=${GO:-go}

# The packages whose tests are about whole programs. They mostly wait for processes.
end_to_end=(./cmd/... ./internal/simulator/trial)

main() {
  if [ "${1:-}" = events ]; then
    shift
    print_events "$@"
    return
  fi
  local result=0
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  gotestsum --format pkgname-and-test-fails --format-icons text --hide-summary output --jsonfile "$dir/timing.json" \
    --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
    --rerun-fails-report "$dir/repeated" --raw-command -- "$0" events "$dir" "$@" || result=$?
  summary
  return "$result"
}

gotestsum() { "$GO" tool -modfile=tools/go.mod gotestsum "$@"; }

# print_events runs go test for gotestsum: all packages, or, when a test is repeated, "-test.run=NAME PACKAGE" at the end.
# What go prints beside the events, such as the modules that it fetches, would end gotestsum's run: it goes to a file.
print_events() {
  local dir=$1 last=${*: -1} repeated=()
  shift
  exec 2>>"$dir/said"
  if [ "$#" -ge 2 ] && [[ ${*: -2:1} == -test.run=* ]]; then
    repeated=("${*: -2:1}")
    set -- "${@:1:$#-2}"
    ! may_not_be_repeated || return 1
    if is_end_to_end "$last"; then
      "$GO" test -json -count=1 "$@" "${repeated[@]}" "$last"
    else
      CGO_ENABLED=1 "$GO" test -json -race -count=1 "$@" "${repeated[@]}" "$last"
    fi
    return
  fi
  print_all_events "$@" | tee "$dir/events.json"
}

print_all_events() {
  local result=0 packages
  packages=$("$GO" list ./... | grep -vxFf <("$GO" list "${end_to_end[@]}"))
  # shellcheck disable=SC2046,SC2086 # lists of words
  CGO_ENABLED=1 "$GO" test -json -race $(one_at_a_time) -parallel "$(parallel)" -timeout 30m "$@" $packages || result=1
  # shellcheck disable=SC2046
  "$GO" test -json $(one_at_a_time) -timeout 90m "$@" "${end_to_end[@]}" || result=1
  return "$result"
}

# may_not_be_repeated: what breaks a promise once has broken it.
may_not_be_repeated() { grep -qE 'INVARIANT |data race or panic' "$dir/events.json"; }

is_end_to_end() { "$GO" list "${end_to_end[@]}" | grep -qxF "$1"; }

# one_at_a_time: the tests of one package after the other, since each keeps the machine busy by itself, with servers and
# processes that are killed, paused and timed. Where there is flock, the next package is built meanwhile. (The lock is on the
# Makefile: go itself locks go.mod.) The time limit counts from when a test was built, not from its turn.
one_at_a_time() {
  if command -v flock >/dev/null; then
    echo "-p 2 -exec=$root/scripts/in-turn.sh"
  else
    echo "-p 1"
  fi
}

# parallel is how many tests of one package run at once: most wait for servers, half of the time of two cores.
parallel() {
  local n
  n=$(nproc 2>/dev/null || echo 2)
  echo $((n + (n + 1) / 2))
}

summary() {
  if [ -s "$dir/timing.json" ]; then
    printf '\nSlowest tests (those above 5 s should be made shorter, or be built with the tag slow):\n'
    gotestsum tool slowest --jsonfile "$dir/timing.json" --threshold 1s --num 20 | sed 's/^/  /'
  fi
  [ ! -s "$dir/said" ] || { printf '\ngo said:\n' && tail -n 20 "$dir/said"; }
  if may_not_be_repeated; then
    printf '\nAn invariant was broken, or a process had a data race or a panic: no test is run again.\n'
  fi
  if grep -qE '[2-9] runs, 1 failures' "$dir/repeated" 2>/dev/null; then
    printf '\nFLAKY: failed, and passed when they were run again, alone. Their causes have to be mended:\n'
    grep -E '[2-9] runs, 1 failures' "$dir/repeated" | sed 's/: .*//; s/^/  /'
  fi
}

main "$@"
