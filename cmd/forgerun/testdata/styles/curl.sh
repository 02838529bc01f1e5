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

# header NAME gives a header of the last answer.
header() {
  tr -d '\r' <"$dir/head" | awk -v name="$1:" '
    /^HTTP\// { value = "" } # one that was redirected comes before it
    tolower($1) == name { sub(/^[^:]*: */, ""); value = $0 }
    END { print value }'
}

# told says how many seconds the last answer has the client wait, by a number or a date; nothing if it says neither.
told() {
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

# request PATH [OPTION...] sends a request until it is answered; $status, $dir/head and $dir/body are the answer then. It fails if it gives
# the request up.
request() {
  path=$1
  shift
  backoff=1 try=1 refused=0
  while :; do
    status=$(curl -sS -L --max-redirs 10 --max-time 10 -H "@$dir/auth" -D "$dir/head" -o "$dir/body" -w '%{http_code}' "$@" \
      "$FORGERUN_URL$path") || status=000
    case $status in
      000) : >"$dir/head" ;;
      200 | 202) # a proxy's page is no answer
        [ "$(head -c 1 "$dir/body")" != '{' ] || return 0
        : >"$dir/head"
        ;;
      401)
        refused=$((refused + 1))
        [ "$refused" -lt 2 ] || return 0
        ;;
      403) [ -n "$(header retry-after)" ] || return 0 ;;
      404) ;; # the service does not show it yet
      429 | 500 | 502 | 503 | 504) ;;
      *) return 0 ;;
    esac
    [ "$try" -lt 10 ] || {
      echo "$path: gave up with $status after $try tries" >&2
      return 1
    }
    wait=$(told)
    wait=${wait:-0}
    sleep $((wait > backoff ? wait : backoff))
    try=$((try + 1)) backoff=$((try > 2 ? 2 : 1))
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

# submit ENDS BEHAVIOR AUTO_RETRY submits a job, and notes its id and how it is to end. An order that is given up does not end the others.
submit() {
  request /v1/jobs -H 'Content-Type: application/json' -H "Idempotency-Key: $(random)" -H "X-Correlation-ID: order-$(random)" \
    -d "{\"type\":\"EXECUTE\",\"work_kind\":\"CUSTOM\",\"auto_retry\":$3,\"params\":{\"behavior\":$2}}" || {
    failed=1
    return 0
  }
  [ "$status" = 202 ] || fail "submitting: $status $(cat "$dir/body")"
  echo "$(member job_id) $1 $3" >>"$dir/jobs"
}

# learn ID ENDS AUTO_RETRY reads a job until it has ended. It fails if that is not as intended, or if it gives the job up.
learn() {
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
    again=$(told)
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
  learn "$id" "$ends" "$retried" || failed=1
done <"$dir/jobs"
[ -z "$failed" ] || fail "some jobs did not end as intended"
echo "6 jobs ended as intended"
