#!/bin/sh
# A client of ForgeRun that does what a client should, with curl alone.
#
#     FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... sh client.sh
#
# curl's --retry waits as Retry-After says, or longer each time, and repeats the same request: same key, same body.
set -eu

out=$(mktemp)
trap 'rm -f "$out"' EXIT

# ask PATH [OPTION...]: the body goes to $out; status, Retry-After and ETag are said, a line each.
ask() {
  path=$1
  shift
  printf 'header = "Authorization: Bearer %s"\n' "$FORGERUN_API_KEY" |
    curl --config - --silent --show-error --location --output "$out" \
      --write-out '%{http_code}\n%header{retry-after}\n%header{etag}\n' \
      --retry 20 --retry-all-errors --retry-connrefused --connect-timeout 5 --max-time 40 \
      --header 'Accept: application/json, application/problem+json' "$@" "$FORGERUN_URL$path"
}

# member NAME: the first string of that name in the body.
member() { grep -o "\"$1\": *\"[^\"]*\"" "$out" | head -n 1 | sed 's/.*: *"\(.*\)"/\1/'; }

# submit KIND CORRELATION: says the id of the job.
submit() {
  said=$(ask /v1/jobs --header 'Content-Type: application/json' --header "X-Correlation-ID: $2" \
    --header "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" --data "{\"type\": \"EXECUTE\", \"work_kind\": \"$1\"}")
  case $said in
    202* | 200*) member job_id ;;
    *) echo "the job was refused: $(cat "$out")" >&2 && return 1 ;;
  esac
}

# finish ID: waits until the job is final, and says its state. The service keeps the answer back until then, or for ten seconds.
finish() {
  tag=''
  while :; do
    said=$(ask "/v1/jobs/$1" --header 'Prefer: wait=10' --header "If-None-Match: $tag")
    case $said in
      200*)
        state=$(member state)
        case $state in
          SUCCEEDED | FAILED | CANCELED) echo "$state" && return ;;
        esac
        tag=$(printf '%s\n' "$said" | sed -n 3p)
        ;;
      304*) ;;
      *) echo "the job cannot be read: $(cat "$out")" >&2 && return 1 ;;
    esac
    pause=$(printf '%s\n' "$said" | sed -n 2p)
    sleep "${pause:-1}"
  done
}

n=0
for kind in SUCCESS_FAST FAIL_IMMEDIATE; do
  [ "$n" -eq 0 ] || sleep 3
  n=$((n + 1))
  id=$(submit "$kind" "order-$$-$n")
  echo "$id $kind $(finish "$id")"
done
