-- name: lockClientsWebhooks
-- Takes an advisory lock, so that only one transaction at a time counts a client's webhooks and adds one.
-- Parameters: @client
SELECT pg_advisory_xact_lock(hashtextextended('webhooks of ' || @client::text, 0))

-- name: insertWebhook
-- Writes an enabled webhook. If @proven is true, the webhook's receiver counts as proven. Counts the client's webhooks by the index
-- webhooks_client, under the lock of lockClientsWebhooks. No row: the limit is reached.
-- Parameters: @webhook, @client, @url, @events, @description, @content_mode, @secret, @proven, @most
INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, proven_at,
  proven_url)
SELECT @webhook, @client, @url, @events, @description, @content_mode, @secret, at, at, CASE WHEN @proven THEN at END,
  CASE WHEN @proven THEN @url END
FROM (VALUES (clock_timestamp())) AS v(at)
WHERE (SELECT count(*) FROM webhooks WHERE client_id = @client AND deleted_at IS NULL) < @most
RETURNING {{webhookColumns}}

-- name: readWebhook
-- Reads a webhook by primary key. Locks nothing. No row: the client has no such webhook.
-- Parameters: @webhook, @client
SELECT {{webhookColumns}} FROM webhooks WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL

-- name: listWebhooks
-- Lists a client's webhooks using the index webhooks_client, the newest first.
-- Parameters: @client
SELECT {{webhookColumns}} FROM webhooks WHERE client_id = @client AND deleted_at IS NULL ORDER BY webhook_id DESC

-- name: updateWebhook
-- Changes each column with a parameter that is not null. @proven says whether the receiver of the new @url is proven. Locks the webhook,
-- found by primary key. No row: the client has no such webhook.
-- Parameters: @webhook, @client, @url, @events, @description, @content_mode, @enabled, @proven
UPDATE webhooks SET url = coalesce(@url, url), events = coalesce(@events, events), description = coalesce(@description, description),
  content_mode = coalesce(@content_mode, content_mode), updated_at = clock_timestamp(),
  disabled_at = CASE WHEN @enabled THEN NULL WHEN NOT @enabled THEN coalesce(disabled_at, clock_timestamp()) ELSE disabled_at END,
  disabled_reason = CASE WHEN @enabled THEN NULL WHEN NOT @enabled THEN coalesce(disabled_reason, 'OWNER') ELSE disabled_reason END,
  consecutive_failures = CASE WHEN @enabled OR @url <> url THEN 0 ELSE consecutive_failures END,
  failing_since = CASE WHEN @enabled OR @url <> url THEN NULL ELSE failing_since END,
  proven_at = CASE WHEN @proven THEN clock_timestamp() WHEN @url <> url THEN NULL ELSE proven_at END,
  proven_url = CASE WHEN @proven THEN coalesce(@url, url) WHEN @url <> url THEN NULL ELSE proven_url END
WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL
RETURNING {{webhookColumns}}

-- name: deleteWebhook
-- Marks a webhook as deleted and removes its secrets, which are no longer needed. Locks the webhook, found by primary key. No row: the
-- client has no such webhook.
-- Parameters: @webhook, @client
UPDATE webhooks SET deleted_at = at, updated_at = at, secret = '', old_secrets = '{}', old_secrets_until = '{}'
  FROM (VALUES (clock_timestamp())) AS v(at)
WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL
RETURNING {{webhookColumns}}

-- name: rotateSecret
-- Replaces a webhook's secret, and keeps the three previous ones. Locks the webhook, found by primary key. No row: the client has no such
-- webhook.
-- Parameters: @webhook, @client, @secret, @overlap
UPDATE webhooks SET secret = @secret, old_secrets = (secret || old_secrets)[1:3],
  old_secrets_until = ((real_at + @overlap::interval) || old_secrets_until)[1:3], updated_at = at
FROM (VALUES (clock_timestamp())) AS v(at), (VALUES (pg_catalog.clock_timestamp())) AS r(real_at)
WHERE webhook_id = @webhook AND client_id = @client AND deleted_at IS NULL
RETURNING {{webhookColumns}}

-- name: subscribers
-- Reads the whole index webhooks_enabled.
SELECT client_id, webhook_id FROM webhooks WHERE deleted_at IS NULL AND disabled_at IS NULL ORDER BY client_id, webhook_id

-- name: provenURLs
-- Reads the enabled webhooks of a client by the index webhooks_enabled. Locks nothing. A proof for another URL does not count.
-- Parameters: @client
SELECT url FROM webhooks WHERE client_id = @client AND deleted_at IS NULL AND disabled_at IS NULL AND proven_at IS NOT NULL
  AND proven_url = url

-- name: signingKeys
-- Reads the published keys, the oldest first. Locks nothing.
SELECT kid, public_key, private_key, created_at, signs_from, retires_at FROM signing_keys
WHERE (retires_at IS NULL OR retires_at > pg_catalog.clock_timestamp()) ORDER BY created_at, kid

-- name: addSigningKey
-- Adds a key, or restores a retiring one. No row changed: the key @kid is current, or @only_first is true and a key is already
-- published.
-- Parameters: @kid, @public, @private, @delay, @only_first
INSERT INTO signing_keys (kid, public_key, private_key, created_at, signs_from)
SELECT @kid, @public, @private, at, CASE WHEN k.known THEN at + @delay::interval ELSE at END
FROM (VALUES (pg_catalog.clock_timestamp())) AS v(at), (SELECT EXISTS (SELECT FROM signing_keys
  WHERE retires_at IS NULL OR retires_at > pg_catalog.clock_timestamp()) AS known) AS k
WHERE NOT (@only_first AND k.known)
ON CONFLICT (kid) DO UPDATE SET created_at = excluded.created_at, signs_from = excluded.signs_from, retires_at = NULL
WHERE signing_keys.retires_at IS NOT NULL

-- name: retireOtherKeys
-- Sets when all other keys retire: @overlap after the key @kid begins to sign. A key that retires earlier anyway keeps its time.
-- Parameters: @kid, @overlap
UPDATE signing_keys SET retires_at = least(retires_at, (SELECT greatest(signs_from, pg_catalog.clock_timestamp()) FROM signing_keys
  WHERE kid = @kid) + @overlap::interval)
WHERE kid <> @kid

-- fragment: webhookColumns
-- In the order of scanWebhook.
webhooks.webhook_id, webhooks.client_id, webhooks.url, webhooks.events, webhooks.description, webhooks.content_mode,
  webhooks.secret, webhooks.old_secrets, webhooks.old_secrets_until,
  webhooks.created_at, webhooks.updated_at, webhooks.disabled_at, coalesce(webhooks.disabled_reason, ''),
  webhooks.consecutive_failures, webhooks.failing_since, CASE WHEN webhooks.proven_url = webhooks.url THEN webhooks.proven_at END
