#!/bin/sh
# The tenth style: six jobs with curl, one process for each request.
set -eu
umask 077
: "${FORGERUN_URL:?}" "${FORGERUN_API_KEY:?}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf 'Authorization: Bearer %s\nAccept: application/json\n' "$FORGERUN_API_KEY" >"$dir/auth"

fail() {
  echo "$*" >&2
  exit 1
}

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# header NAME prints a header of the last response.
header() {
  tr -d '\r' <"$dir/head" | awk -v name="$1:" '
    /^HTTP\// { value = "" } # a redirect comes before the final response
    tolower($1) == name { sub(/^[^:]*: */, ""); value = $0 }
    END { print value }'
}

# retry_after prints the wait in the Retry-After of the last response in seconds; nothing if there is none.
retry_after() {
  text=$(header retry-after)
  case $text in
    '') ;;
    *[!0-9]*)
      case $text in
        ???,\ *GMT) at=$(date -d "$text" +%s) && echo $((at > $(date +%s) ? at - $(date +%s) + 1 : 0)) ;;
      esac
      ;;
    *) echo "$text" ;;
  esac
}

# member NAME prints the first member with that name in the last response, without quotes.
member() {
  awk -v name="\"$1\": *" '{ text = text $0 } END {
    if (!match(text, name)) exit
    text = substr(text, RSTART + RLENGTH)
    match(text, /^("[^"]*"|[a-z0-9.]+)/)
    text = substr(text, 1, RLENGTH)
    gsub(/"/, "", text)
    print text
  }' "$dir/body"
}

# request PATH [OPTION...] repeats a request until it gets a conclusive response, which is in $status, $dir/head and $dir/body. It fails if
# it gives up.
request() {
  path=$1
  shift
  backoff=1 try=1 refused=0
  while :; do
    status=$(curl -sS -L --max-redirs 10 --max-time 10 -H "@$dir/auth" -D "$dir/head" -o "$dir/body" -w '%{http_code}' "$@" \
      "$FORGERUN_URL$path") || status=000
    case $status in
      000) : >"$dir/head" ;;
      200 | 202) # skip the page of a proxy
        [ "$(head -c 1 "$dir/body")" != '{' ] || return 0
        : >"$dir/head"
        ;;
      401)
        refused=$((refused + 1))
        [ "$refused" -lt 2 ] || return 0
        ;;
      403) [ -n "$(header retry-after)" ] || return 0 ;;
      404) ;; # not visible yet
      429 | 500 | 502 | 503 | 504) ;;
      *) return 0 ;;
    esac
    [ "$try" -lt 10 ] || {
      echo "$path: gave up with $status after $try tries" >&2
      return 1
    }
    wait=$(retry_after)
    wait=${wait:-0}
    sleep $((wait > backoff ? wait : backoff))
    try=$((try + 1)) backoff=$((try > 2 ? 2 : 1))
  done
}

# ended AUTO_RETRY succeeds if the job in the last response has ended for good.
ended() {
  case $(member state)/$1/$(member can_retry) in
    FAILED/true/true) return 1 ;; # the service retries it
    SUCCEEDED/* | FAILED/* | CANCELED/*) ;;
    *) return 1 ;;
  esac
}

# submit ENDS BEHAVIOR AUTO_RETRY submits a job, and stores its id and expected end. If it gives up, the other jobs continue.
submit() {
  request /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $(random)" -H "X-Correlation-ID: order-$(random)" \
    -d "{\"type\":\"EXECUTE\",\"work_kind\":\"CUSTOM\",\"auto_retry\":$3,\"params\":{\"behavior\":$2}}" || {
    failed=1
    return 0
  }
  [ "$status" = 202 ] || fail "submitting: $status $(cat "$dir/body")"
  echo "$(member job_id) $1 $3" >>"$dir/jobs"
}

# await ID ENDS AUTO_RETRY reads a job until it has ended. It fails if the job ended differently, or if it gives up.
await() {
  etag=
  while :; do
    if [ -n "$etag" ]; then
      request "/v1/jobs/$1" -H "If-None-Match: $etag" || return 1
    else
      request "/v1/jobs/$1" || return 1
    fi
    case $status in
      200)
        etag=$(header etag)
        ! ended "$3" || break
        ;;
      304) ;;
      *)
        echo "reading $1: $status $(cat "$dir/body")" >&2
        return 1
        ;;
    esac
    again=$(retry_after)
    sleep "${again:-2}"
  done
  [ "$(member state)" = "$2" ] || {
    echo "job $1 ended as $(member state), not as $2" >&2
    return 1
  }
}

failed=
submit SUCCEEDED '{"duration":"300ms"}' false
submit SUCCEEDED '{"duration":"2s"}' false
submit SUCCEEDED '{"duration":"300ms"}' false
submit FAILED '{"failures":[{"attempts":[1],"problem":{"title":"No such item","status":422,"retryable":false}}]}' false
submit SUCCEEDED '{"duration":"300ms","failures":[{"attempts":[1],"problem":{"title":"Out of stock","status":409,"retryAfter":1}}]}' true
submit SUCCEEDED '{"duration":"300ms"}' false
while read -r id ends retried; do
  await "$id" "$ends" "$retried" || failed=1
done <"$dir/jobs"
[ -z "$failed" ] || fail "some jobs did not end as intended"
echo "6 jobs ended as intended"
