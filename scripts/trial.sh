# The common functions of the trials in this folder, which include this file. "work" is the folder of a trial.
# shellcheck shell=bash

say() { printf '\n== %s\n' "$*"; }
fail() { echo "$(basename "$0"): $*" >&2 && exit 1; }

# expect TEXT COMMAND... fails unless the output of the command contains the text.
expect() {
  local text=$1 out
  shift
  out=$("$@" 2>&1) || true
  [[ $out == *"$text"* ]] || fail "no \"$text\" from $*: $out"
  echo "ok: $text"
}

# await COMMAND... repeats the command until it succeeds, for up to a minute.
await() {
  local i
  for ((i = 0; i < 600; i++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  fail "in vain: $*"
}

# run_job URL KEY runs a job, waits for its end and prints its id.
run_job() {
  local id state
  id=$(curl -fsS "$1/v1/jobs" -H "Authorization: Bearer $2" -H 'Content-Type: application/json' \
    -d '{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}' | jq -er .job_id)
  while true; do
    state=$(curl -fsS "$1/v1/jobs/$id" -H "Authorization: Bearer $2" -H 'Prefer: wait=10' | jq -er .state)
    [ "$state" != SUCCEEDED ] || break
    [ "$state" != FAILED ] || fail "job $id failed"
  done
  echo "$id"
}
