#!/bin/sh
# Mistakes that people make, beside client.sh. Without a profile the verdict names each of them:
#
# no-key-in-url         the key is in a URL, for every log on the way
# content-negotiation   it asks for a form that there is not
# not-retryable         it tries again what has failed for good
# outcome-learned       it does not look what became of a job
# same-body             one key for all that it submits
set -u

ask() {
  path=$1
  shift
  curl --silent --header "Authorization: Bearer $FORGERUN_API_KEY" --header 'Content-Type: application/json' "$@" "$FORGERUN_URL$path"
}

submit() { ask /v1/jobs --header "X-Correlation-ID: $1" --header "Idempotency-Key: $2" --data "{\"type\": \"EXECUTE\", \"work_kind\": \"$3\"}"; }

id=$(submit order-1 one FAIL_IMMEDIATE | sed 's/{"job_id":"\([^"]*\)".*/\1/')
ask "/v1/jobs/$id/events" --header 'Accept: text/event-stream' # to its end
ask "/v1/jobs/$id"
ask "/v1/jobs/$id/retry" --request POST
submit order-2 one SUCCESS_FAST
submit order-3 three SUCCESS_FAST
ask "/v1/jobs?state=FAILED&api_key=$FORGERUN_API_KEY"
ask /v1/jobs --header 'Accept: text/csv'
sleep 6
