#!/bin/sh
# Says whether a captured webhook delivery is ForgeRun's, by the webhook's secret, with openssl.
# The body is read from standard input as it was received, the three headers and
# the secret from the environment. Exit code 0 and "ok", or 1 and the reason.
# The key is visible in ps while openssl runs: for trying things out, not for a receiver.
set -eu
fail() { echo "$1"; exit 1; }

case $WEBHOOK_TIMESTAMP in '' | *[!0-9]*) fail "the timestamp is no number" ;; esac
age=$(($(date +%s) - WEBHOOK_TIMESTAMP))
[ "${age#-}" -le 300 ] || fail "the timestamp is too old or in the future"

key=$(printf %s "${WEBHOOK_SECRET#whsec_}" | openssl base64 -d -A | od -An -v -tx1 | tr -d ' \n')
wanted=$({ printf %s "$WEBHOOK_ID.$WEBHOOK_TIMESTAMP."; cat; } |
    openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | openssl base64 -A)
for given in $WEBHOOK_SIGNATURE; do
    [ "$given" != "v1,$wanted" ] || { echo ok; exit 0; }
done
fail "no signature matches the secret"
