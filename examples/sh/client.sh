#!/bin/sh
# A client of ForgeRun that does what a client should do. It uses only curl.
#
#     FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... sh client.sh
#
# With --retry, curl waits as long as Retry-After says, or two seconds, and repeats the same request with the same key and body. Some
# versions wait for ever if Retry-After is a date in the past, so all tries together have a time limit. After a redirect to another host,
# curl does not send the key.
set -eu

out=$(mktemp)
trap 'rm -f "$out"' EXIT

# ask PATH [OPTION...] writes the body to $out, and sets $said to the status, Retry-After and ETag, one on each line.
ask() {
  path=$1 try=1 refused=''
  shift
  while :; do
    said=$(printf 'header = "Authorization: Bearer %s"\n' "$FORGERUN_API_KEY" |
      curl --config - --silent --show-error --location --max-redirs 10 --output "$out" \
        --write-out '%{http_code}\n%header{retry-after}\n%header{etag}\n' \
        --retry 9 --retry-delay 2 --retry-max-time 120 --retry-all-errors --retry-connrefused --connect-timeout 5 --max-time 15 \
        --header 'Accept: application/json, application/problem+json' "$@" "$FORGERUN_URL$path") || return 1
    case $said in # curl does not retry these statuses
      401*) [ -z "$refused" ] || return 0 && refused=1 ;;
      403*) [ -n "$(told)" ] || return 0 ;;
      404*) ;;
      *) return 0 ;;
    esac
    [ "$try" -lt 10 ] || return 0
    try=$((try + 1))
    pause
  done
}

# told prints the seconds from Retry-After of the last answer, which is a number or a date. If it is neither, told prints nothing.
told() {
  text=$(printf '%s\n' "$said" | sed -n 2p)
  case $text in
    ???,\ *GMT) at=$(date -d "$text" +%s) && echo $((at > $(date +%s) ? at - $(date +%s) + 1 : 0)) ;;
    '' | *[!0-9]*) ;;
    *) echo "$text" ;;
  esac
}

pause() {
  seconds=$(told)
  sleep "${seconds:-1}"
}

# member NAME prints the first string member with this name in the body.
member() { grep -o "\"$1\": *\"[^\"]*\"" "$out" | head -n 1 | sed 's/.*: *"\(.*\)"/\1/'; }

# submit KIND CORRELATION submits a job and prints its id.
submit() {
  ask /v1/jobs --header 'Content-Type: application/json' --header "X-Correlation-ID: $2" \
    --header "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" --data "{\"type\": \"EXECUTE\", \"work_kind\": \"$1\"}" || return 1
  case $said in
    202* | 200*) member job_id ;;
    *) echo "the job was refused: $(cat "$out")" >&2 && return 1 ;;
  esac
}

# finish ID waits until the job has ended, and prints its state. The service holds each answer until the job ends, at most five seconds.
finish() {
  tag='' vain=0
  while :; do
    ask "/v1/jobs/$1" --header 'Prefer: wait=5' --header "If-None-Match: $tag" || return 1
    case $said in
      200*)
        state=$(member state)
        case $state in
          SUCCEEDED | FAILED | CANCELED) echo "$state" && return ;;
        esac
        tag=$(printf '%s\n' "$said" | sed -n 3p)
        ;;
      304*) ;;
      5*) # curl did not retry: Retry-After exceeded the time limit of curl, or was in the past
        vain=$((vain + 1))
        [ "$vain" -lt 3 ] || return 1
        ;;
      *) echo "the job cannot be read: $(cat "$out")" >&2 && return 1 ;;
    esac
    pause
  done
}

n=0 gave_up=0
for kind in SUCCESS_FAST FAIL_IMMEDIATE; do
  [ "$n" -eq 0 ] || sleep 3
  n=$((n + 1))
  if id=$(submit "$kind" "order-$$-$n") && state=$(finish "$id"); then
    echo "$id $kind $state"
  else
    gave_up=1 # only for this order; the others continue
  fi
done
exit "$gave_up"
