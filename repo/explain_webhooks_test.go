package repo_test

// seedWebhooks adds 10,000 webhooks, one of them the busy client's, and
// deliveries in all states.
const seedWebhooks = `
INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, deleted_at)
SELECT CASE i WHEN 1 THEN '` + busy + `' ELSE gen_random_uuid() END, CASE i WHEN 1 THEN '` + busy +
	`' ELSE gen_random_uuid() END, 'http://x.test', '{*}', '', 'binary', 'x', at, at,
  CASE WHEN i % 100 = 0 THEN at END FROM n WHERE i <= 10000;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, job_id, seq, event_id, event_name, created_at, state, attempts,
	settled_at, last_error)
SELECT gen_random_uuid(), w.client_id, w.webhook_id, w.webhook_id, n.id, s, gen_random_uuid(), 'x', n.at,
	CASE WHEN i % 10 = 0 THEN 'FAILED' ELSE 'DELIVERED' END, 1, n.at,
  CASE WHEN i % 10 = 0 THEN 'TIMEOUT' END
FROM n, generate_series(1, 2) s, LATERAL (SELECT * FROM webhooks WHERE i % 4 = 0 AND client_id = '` + busy +
	`' OR i % 4 > 0 ORDER BY webhook_id OFFSET CASE WHEN i % 4 = 0 THEN 0 ELSE i % 100 END LIMIT 1) w;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at,
	claimed_until)
SELECT gen_random_uuid(), '` + busy + `', '` + busy + `', '` + busy +
	`', 0, gen_random_uuid(), 'x', at, at, CASE WHEN i % 20 = 0 THEN now() + i * interval '1 s' END FROM n WHERE i <= 2000;
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, next_attempt_at)
SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'x', now(), now() FROM webhooks, generate_series(1, 2);
INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms) SELECT delivery_id, 1, now(), 1 FROM deliveries
	WHERE attempts = 1;
INSERT INTO outcome_outbox SELECT id, 1, at, CASE WHEN i % 10 > 0 THEN at END FROM n;
`

// How webhooks and their deliveries find their rows.
func init() {
	const id = `'` + nobody + `'`
	const anID = `'` + busy + `'`
	webhook, clients := use{"webhooks_pkey", "webhook_id = "}, use{"webhooks_client", "client_id = "}
	theirs := use{"webhooks_client", "webhook_id = "}
	walk := use{"deliveries_waiting", "ROW(client_id, endpoint_id) >"}
	key, keys := use{"deliveries_pkey", "delivery_id = "}, use{"deliveries_pkey", "delivery_id = ANY"}
	of := func(client string) string { return anID + `, ` + client }
	list := id + `, ` + id + `, '` + lastID + `', ` + id + `, NULL, NULL, NULL, NULL, 51`
	add := func(name, args string, uses ...use) {
		p := plans[name]
		p.args, p.uses = args, uses
		plans[name] = p
	}
	add("readWebhook", of(anID), theirs)
	add("findAnswer", anID+`, 'client', 'key'`, use{"idempotency_keys_pkey", "key = "})
	add("listWebhooks", anID, clients)
	add("countWebhooks", anID)
	add("provenURLs", anID, use{"webhooks_enabled", "client_id = "})
	add("updateWebhook", of(anID)+`, NULL, NULL, NULL, NULL, NULL, false`, theirs)
	add("deleteWebhook", of(anID), theirs)
	add("rotateSecret", of(anID)+`, 'x', '1 s'`, theirs)
	add("listByWebhook", list, use{"deliveries_webhook", "ROW(webhook_id, delivery_id) <"},
		use{"deliveries_webhook", "ROW(webhook_id, delivery_id) >="}, theirs)
	add("listFailed", list, use{"deliveries_failed", "ROW(webhook_id, delivery_id) <"},
		use{"deliveries_failed", "ROW(webhook_id, delivery_id) >="}, theirs)
	add("listByJob", list, use{"deliveries_job", "ROW(job_id, delivery_id) <"}, use{"deliveries_job", "ROW(job_id, delivery_id) >="},
		use{"jobs_client", "job_id = "})
	add("readDelivery", of(anID)+`, `+of(`NULL`)+`, 100`, use{"delivery_attempts_pkey", "delivery_id = "})
	add("redeliver", of(anID)+`, `+of(`NULL`), webhook)
	add("redeliverFailed", of(anID)+`, '2000-01-01', 1000, `+id, use{"deliveries_failed", "delivery_id >= "}, keys)
	add("testWebhook", of(anID), use{"webhooks_enabled", "webhook_id = "})
	add("findReplayStart", anID+`, '2000-01-01'`, use{"events_client", "tx >= "})
	add("replayEvents", of(anID)+`, '2000-01-01', 100, '1', `+id+`, 0, 10000`, use{"webhooks_enabled", "webhook_id = "},
		use{"events_client", "ROW(tx, job_id, seq) > "}, use{"client_events_client", "ROW(tx, event_id) > "},
		use{"deliveries_once", "event_id = "}, use{"jobs_pkey", "job_id = ANY"})
	add("dueEndpoints", of(id)+`, 1000, 10000`, use{"deliveries_waiting", "endpoint_id > "}, webhook)
	add("dueClients", of(anID)+`, 1000, '1 s'`, walk, webhook)
	add("waitingDeliveries", of(anID)+`, 1000, 10, '1 s', 2000`, walk, webhook, use{"deliveries_waiting", "next_attempt_at > (now() -"})
	add("claimDeliveries", arrays("uuid", "uuid", "16", "1s"), use{"deliveries_waiting", "next_attempt_at <= now()"}, key, webhook,
		use{"events_pkey", "seq = "}, use{"client_events_pkey", "event_id = "}, byKey, use{"reports_pkey", "attempt = "})
	add("recordDeliveries", arrays("uuid", "1", "PENDING", "1s", "GONE", "2000-01-01", "1", "TIMEOUT", "1", "null", "x", "f")+`, 20,
		'10 min', '{}', 100`, key, webhook, use{"delivery_attempts_pkey", "delivery_id = "})
	add("releaseDeliveries", arrays("uuid", "1"), key, keys)
	add("reclaimDeliveries", `500`, use{"deliveries_claimed", "claimed_until <= now()"}, keys)
	add("failOrphans", of(anID)+`, 1000, 500`, walk, webhook, use{"deliveries_waiting", "endpoint_id = "}, keys, key)
	add("moveStrandedDeliveries", of(anID)+`, 100, 1000`, walk, use{"deliveries_waiting", "endpoint_id = "}, key)
	add("endStrandedLeases", `5000`, use{"deliveries_claimed", "claimed_until > "}, keys)
	add("unpublishedOutcomes", `500`, use{"outcome_outbox_waiting", ""}, byKey, use{"reports_pkey", "attempt = "},
		use{"outcome_outbox_pkey", "job_id = ANY"})
	add("markPublished", arrays("uuid", "1"), use{"outcome_outbox_pkey", "job_id = "})
	add("republishOutcomes", `500`, use{"outcome_outbox_published", ""}, use{"outcome_outbox_pkey", "job_id = ANY"})
	add("cleanDeliveries", `'13 days', 500`, use{"jobs_ended", "finished_at <= (now() -"}, use{"deliveries_job", "job_id = "}, keys)
	add("cleanLogs", `'13 days', 500`, use{"webhooks_deleted", "deleted_at <= (now() -"}, use{"deliveries_webhook", "webhook_id = "}, keys)
	add("cleanWebhooks", `'13 days', 500`, use{"webhooks_deleted", "deleted_at <= (now() -"}, use{"deliveries_webhook", "webhook_id = "},
		use{"webhooks_pkey", "webhook_id = ANY"})
	add("cleanClientDeliveries", `'13 days', 500`, use{"client_events_age", "occurred_at <= (now() -"},
		use{"deliveries_once", "event_id = "}, keys)
	add("removePublished", `'13 days', 500`, use{"outcome_outbox_published", "published_at <= (now() -"},
		use{"outcome_outbox_pkey", "job_id = "})
	p := plans["delete"]
	p.uses = append(p.uses, use{"outcome_outbox_pkey", "job_id = ANY"})
	plans["delete"] = p
}
