#!/usr/bin/env bash
# Runs the tests, and repeats each failed test once, alone:
#
#   scripts/test.sh [FLAG...]    flags of go test, for all packages: -tags slow, -run NAME
#
# FORGERUN_TEST_PACKAGES="./cmd/forgerun ./repo" runs the tests of these packages only.
#
# Packages with much concurrency run with the race detector. The other packages, and the programs that end-to-end tests run, use
# it only if FORGERUN_TEST_RACE=1. Only "make lint" runs vet. All packages share one Postgres server. A failed test is repeated
# once, alone, unless more than five tests failed, a data race or a panic occurred, or an invariant of the rows was broken. If the
# repetition passes, the run passes and names the test as flaky. The output ends with the slowest tests, the flaky tests and the
# totals.
#
# It also calls itself, through gotestsum, as "scripts/test.sh events DIR [FLAG...]".
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
GO=${GO:-go}

# The packages that always run with the race detector.
raced=(./app/{clients,delivery,events,jobs,maintenance,worker} ./repo/pg ./tasks/{consumer,notify,queue,ratelimit} ./verdict/proxy)
# The tests of whole programs. These tests only start the programs, so the race detector would only slow them down.
programs=(./cmd/... ./internal/simulator/trial)

main() {
  if [ "${1:-}" = events ]; then
    shift
    print_events "$@"
    return
  fi
  if [ -z "${FORGERUN_TEST_POSTGRES:-}" ]; then
    "$GO" build -o bin/ ./internal/testkit/servers
    exec bin/servers "$0" "$@"
  fi
  local result=0
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  build_programs
  gotestsum --format pkgname-and-test-fails --format-icons text --hide-summary output --jsonfile "$dir/timing.json" \
    --rerun-fails=1 --rerun-fails-max-failures=5 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race \
    --rerun-fails-report "$dir/repeated" --raw-command -- "$0" events "$dir" "$@" || result=$?
  summary
  return "$result"
}

# build_programs builds the programs that tests start. Otherwise internal/testkit would build them for each package.
build_programs() {
  export FORGERUN_TEST_PROGRAMS=$dir/programs
  "$GO" build -buildvcs=false -ldflags="-s -w" ${FORGERUN_TEST_RACE:+-race} -o "$FORGERUN_TEST_PROGRAMS/" ./cmd/forgerun
}

gotestsum() { "$GO" tool -modfile=tools/go.mod gotestsum "$@"; }

# print_events runs go test for gotestsum: all packages or, when a test is repeated, "-test.run=NAME PACKAGE" at the end.
# Other output of go, such as the modules that it downloads, would end gotestsum's run, so it goes to a file.
print_events() {
  local dir=$1 last=${*: -1} repeated=()
  shift
  exec 2>>"$dir/said"
  if [ "$#" -ge 2 ] && [[ ${*: -2:1} == -test.run=* ]]; then
    repeated=("${*: -2:1}")
    set -- "${@:1:$#-2}"
    ! may_not_be_repeated || return 1
    if raced_packages | grep -qxF "$last"; then
      test_raced -count=1 "$@" "${repeated[@]}" "$last"
    else
      test_plain -count=1 "$@" "${repeated[@]}" "$last"
    fi
    return
  fi
  print_all_events "$@" | tee "$dir/events.json"
}

# The packages with the race detector run beside the others, of which one takes most of the time. Their events follow at the end.
print_all_events() {
  local result=0 with without
  with=$(raced_packages)
  without=$(all_packages | grep -vxF "$with") || true
  # shellcheck disable=SC2086 # a list of words
  [ -z "$with" ] || test_raced -p 1 -parallel "$(parallel)" "$@" $with >"$dir/raced.json" &
  trap 'kill "$!" 2>/dev/null' INT TERM # an interrupt does not reach it
  # shellcheck disable=SC2086 # a list of words
  test_plain -parallel "$(parallel)" -timeout 90m "$@" $without || result=1
  wait "$!" || result=1
  [ ! -s "$dir/raced.json" ] || cat "$dir/raced.json"
  return "$result"
}

# all_packages lists the packages of FORGERUN_TEST_PACKAGES, or all.
all_packages() {
  # shellcheck disable=SC2086 # a list of words
  "$GO" list ${FORGERUN_TEST_PACKAGES:-./...}
}

test_plain() { "$GO" test -json -vet=off -ldflags="-s -w" "$@"; }

test_raced() { CGO_ENABLED=1 test_plain -race -timeout 30m "$@"; }

raced_packages() {
  if [ "${FORGERUN_TEST_RACE:-}" = 1 ]; then
    all_packages | grep -vxFf <("$GO" list "${programs[@]}") || true
  else
    all_packages | grep -xFf <("$GO" list "${raced[@]}") || true
  fi
}

# parallel is the number of tests of one package that run at once. As many packages as there are cores run at the same time. Most
# tests wait for servers and processes.
parallel() {
  local n
  n=$(nproc 2>/dev/null || echo 2)
  echo $((2 * n))
}

# may_not_be_repeated succeeds if no test must be repeated: after a broken invariant, a data race or a panic, one failure is enough.
may_not_be_repeated() { grep -qE 'INVARIANT |data race or panic' "$dir/events.json"; }

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
