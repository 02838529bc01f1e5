<?php
// Says whether a captured webhook delivery is ForgeRun's, by the webhook's secret.
// The body is read from standard input as it was received, the three headers and
// the secret from the environment. Exit code 0 and "ok", or 1 and the reason.
const MAX_AGE = 300; // seconds

function verify(string $id, string $timestamp, string $signatures, string $body, string $secret, int $now): void
{
    if (!ctype_digit($timestamp) || abs($now - (int) $timestamp) > MAX_AGE) {
        throw new Exception('the timestamp is too old or in the future');
    }
    $key = base64_decode(preg_replace('/^whsec_/', '', $secret), true);
    $wanted = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    foreach (explode(' ', $signatures) as $given) {
        if (hash_equals($wanted, $given)) {
            return;
        }
    }
    throw new Exception('no signature matches the secret');
}

try {
    verify(
        (string) getenv('WEBHOOK_ID'),
        (string) getenv('WEBHOOK_TIMESTAMP'),
        (string) getenv('WEBHOOK_SIGNATURE'),
        stream_get_contents(STDIN),
        (string) getenv('WEBHOOK_SECRET'),
        time()
    );
    echo "ok\n";
} catch (Exception $e) {
    echo $e->getMessage(), "\n";
    exit(1);
}
