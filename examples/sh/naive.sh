#!/bin/sh
# This client makes common mistakes, in contrast to client.sh. Without a profile, the verdict names each of them:
#
# no-key-in-url         it sends the API key in a URL, so logs of proxies and servers contain the key
# content-negotiation   it asks for a format that does not exist
# not-retryable         it retries a job that has failed permanently
# outcome-learned       it does not check how a job ended
# same-body             it uses one key for different jobs
set -u

ask() {
  path=$1
  shift
  curl --silent --header "Authorization: Bearer $FORGERUN_API_KEY" --header 'Content-Type: application/json' "$@" "$FORGERUN_URL$path"
}

submit() { ask /v1/jobs --header "X-Correlation-ID: $1" --header "Idempotency-Key: $2" --data "{\"type\": \"EXECUTE\", \"work_kind\": \"$3\"}"; }

id=$(submit order-1 one FAIL_IMMEDIATE | sed 's/{"job_id":"\([^"]*\)".*/\1/')
ask "/v1/jobs/$id/events" --header 'Accept: text/event-stream' # until the stream ends
ask "/v1/jobs/$id"
ask "/v1/jobs/$id/retry" --request POST
submit order-2 one SUCCESS_FAST
submit order-3 three SUCCESS_FAST
ask "/v1/jobs?state=FAILED&api_key=$FORGERUN_API_KEY"
ask /v1/jobs --header 'Accept: text/csv'
sleep 6
