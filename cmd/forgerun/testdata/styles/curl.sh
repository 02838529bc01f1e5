#!/bin/sh
# The tenth style: six jobs by curl, with a process for each request.
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

# header NAME gives a header of the last answer, in lower case.
header() { tr -d '\r' <"$dir/head" | awk -v name="$1:" 'tolower($1) == name { sub(/^[^:]*: */, ""); value = $0 } END { print value }'; }

# member NAME gives the first member of that name of the last answer, without quotes.
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

# request PATH [OPTION...] sends a request until it is answered; $status, $dir/head and $dir/body are the answer then.
request() {
  path=$1
  shift
  backoff=1 try=0
  while :; do
    status=$(curl -sS -L --max-time 30 -H "@$dir/auth" -D "$dir/head" -o "$dir/body" -w '%{http_code}' "$@" "$FORGERUN_URL$path") ||
      status=000
    case $status in
      000) wait= ;;
      200 | 202) # a proxy's page is no answer
        [ "$(head -c 1 "$dir/body")" != '{' ] || return 0
        wait=
        ;;
      429 | 500 | 502 | 503 | 504) wait=$(header retry-after) ;;
      *) return ;;
    esac
    try=$((try + 1))
    [ "$try" -lt 10 ] || fail "$path: gave up with $status"
    if [ -z "$wait" ]; then
      wait=$backoff
      backoff=$((backoff * 2))
    fi
    sleep "$wait"
  done
}

# ended AUTO_RETRY tells whether the job of the last answer has ended for good.
ended() {
  case $(member state)/$1/$(member can_retry) in
    FAILED/true/true) return 1 ;; # the service tries it again
    SUCCEEDED/* | FAILED/* | CANCELED/*) ;;
    *) return 1 ;;
  esac
}

# submit ENDS BEHAVIOR AUTO_RETRY submits a job, and notes its id and how it is to end.
submit() {
  request /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $(random)" -H "X-Correlation-ID: order-$(random)" \
    -d "{\"type\":\"EXECUTE\",\"work_kind\":\"CUSTOM\",\"auto_retry\":$3,\"params\":{\"behavior\":$2}}"
  [ "$status" = 202 ] || fail "submitting: $status $(cat "$dir/body")"
  echo "$(member job_id) $1 $3" >>"$dir/jobs"
}

# learn ID ENDS AUTO_RETRY reads a job until it has ended.
learn() {
  etag=
  while :; do
    if [ -n "$etag" ]; then
      request "/v1/jobs/$1" -H "If-None-Match: $etag"
    else
      request "/v1/jobs/$1"
    fi
    case $status in
      200)
        etag=$(header etag)
        ! ended "$3" || break
        ;;
      304) ;;
      *) fail "reading $1: $status $(cat "$dir/body")" ;;
    esac
    again=$(header retry-after)
    sleep "${again:-2}"
  done
  [ "$(member state)" = "$2" ] || fail "job $1 ended as $(member state), not as $2"
}

submit SUCCEEDED '{"duration":"300ms"}' false
submit SUCCEEDED '{"duration":"2s"}' false
submit SUCCEEDED '{"duration":"300ms"}' false
submit FAILED '{"failures":[{"attempts":[1],"problem":{"title":"No such item","status":422,"retryable":false}}]}' false
submit SUCCEEDED '{"duration":"300ms","failures":[{"attempts":[1],"problem":{"title":"Out of stock","status":409,"retryAfter":1}}]}' true
submit SUCCEEDED '{"duration":"300ms"}' false
while read -r id ends retried; do
  learn "$id" "$ends" "$retried"
done <"$dir/jobs"
echo "6 jobs ended as intended"
