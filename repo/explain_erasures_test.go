package repo_test

// seedErasures are 2,000 erasures, 20 of which are open, and clients with a key each.
const seedErasures = `
INSERT INTO erasures (erasure_id, client_id, operator, reason, request_id, started_at, finished_at, record, record_sha256)
SELECT id, gen_random_uuid(), 'ann', '', 'r', at, CASE WHEN i > 20 THEN at END, CASE WHEN i > 20 THEN '{}' END,
	CASE WHEN i > 20 THEN sha256('') END FROM n WHERE i <= 2020;
INSERT INTO clients (client_id) SELECT id FROM n WHERE i <= 2000;
INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at) SELECT i, id, sha256(''), at, at FROM n WHERE i <= 2000;
`

// How erasures find their rows.
func init() {
	const id = `'` + nobody + `'`
	add := func(name, args string, uses ...use) {
		p := plans[name]
		p.args, p.uses = args, uses
		plans[name] = p
	}
	add("lockErasedClient", id, use{"clients_pkey", "client_id = "})
	add("erasureOfClient", id, use{"erasures_one_of_a_client", "client_id = "})
	add("insertErasure", id+`, `+id+`, 'ann', '', 'r'`)
	add("revokeErasedKeys", id, use{"api_keys_client", "client_id = "}, use{"api_keys_pkey", "key_id = ANY"})
	add("readErasure", id, use{"erasures_pkey", "erasure_id = "})
	add("listErasures", `'`+lastID+`', 51`, use{"erasures_pkey", "erasure_id < "})
	add("openErasures", `100`, use{"erasures_open", ""})
	add("lockErasure", id, use{"erasures_open", "erasure_id = "})
	add("moveErasure", id+`, 'jobs', `+id+`, `+id+`, '{}', '{}'`, use{"erasures_pkey", "erasure_id = "})
	add("finishErasure", id+`, now(), '{}', '{}', '{}', sha256('')`, use{"erasures_pkey", "erasure_id = "})
	add("erasureSettled", id, use{"erasures_pkey", "erasure_id = "})
	add("stopErasedBulks", id) // by either index: few are open
	add("stopErasedWebhooks", id, use{"webhooks_client", "client_id = "}, use{"webhooks_pkey", "webhook_id = ANY"})
	add("lookErasedJobs", id+`, `+id+`, 500`, use{"jobs_client", "job_id > "})
	add("chooseErasedJobs", id+`, 100`, use{"jobs_client", "client_id = "})
	add("hasErasedJobs", id, use{"jobs_client", "client_id = "})
	old := []use{{"deliveries_pkey", "delivery_id = ANY"}, {"delivery_attempts_pkey", "delivery_id = ANY"}}
	add("eraseWaitingDeliveries", id+`, 500`, append(old, use{"deliveries_waiting", "client_id = "})...)
	add("eraseJobsDeliveries", arrays("uuid")+`, 500`, append(old, use{"deliveries_job", "job_id = "})...)
	add("eraseWebhooksDeliveries", arrays("uuid")+`, 500`, append(old, use{"deliveries_webhook", "webhook_id = "})...)
	add("countErasedAttempts", arrays("uuid"), use{"delivery_attempts_pkey", "delivery_id = ANY"})
	add("jobsHaveDeliveries", arrays("uuid"), use{"deliveries_job", "job_id = "})
	add("webhooksHaveDeliveries", arrays("uuid"), use{"deliveries_webhook", "webhook_id = "})
	of := []use{{"reports_pkey", "job_id = ANY"}, {"results_pkey", "job_id = ANY"}, {"outcome_outbox_pkey", "job_id = ANY"}}
	add("countErasedJobs", arrays("uuid"), of...)
	add("eraseJobs", arrays("uuid"), append(of, use{"jobs_pkey", "job_id = ANY"}, use{"events_pkey", "job_id = ANY"})...)
	add("lookErasedWebhooks", id+`, `+id+`, 2000`, use{"webhooks_pkey", "webhook_id > "})
	add("eraseWebhooks", arrays("uuid"), use{"webhooks_pkey", "webhook_id = ANY"})
	add("eraseBatches", id+`, `+id+`, 2000`, use{"batches_pkey", "batch_id > "}, use{"batches_pkey", "batch_id = ANY"})
	add("eraseTombstones", id+`, `+id+`, 2000`, use{"tombstones_pkey", "job_id > "}, use{"tombstones_pkey", "job_id = ANY"})
	items := use{"bulk_items_pkey", "ROW(bulk_id, job_id) >"}
	add("lockErasedItems", id+`, `+id+`, `+id+`, 2000`, items, use{"bulk_operations_pkey", "bulk_id = ANY"})
	add("eraseItems", arrays("uuid", "uuid"), use{"bulk_items_pkey", "bulk_id = "}, use{"bulk_operations_pkey", "bulk_id = "})
	add("countItems", id+`, `+id+`, `+id+`, 2000`, items)
	add("eraseBulks", id+`, 500`, use{"bulk_operations_client", "client_id = "}, use{"bulk_operations_pkey", "bulk_id = ANY"})
	add("eraseClientEvents", id+`, 500`, use{"client_events_client", "client_id = "}, use{"client_events_pkey", "event_id = ANY"})
	add("eraseEvents", id+`, 500`, use{"events_client", "client_id = "}, use{"events_pkey", "job_id = ANY"})
	add("eraseAnswers", id+`, 500`, use{"idempotency_keys_pkey", "client_id = "})
	add("eraseKeys", id, use{"api_keys_client", "client_id = "})
	add("eraseClient", id, use{"clients_pkey", "client_id = "})
	for name, key := range map[string]string{
		"countDeliveries": "deliveries_pkey", "countAllWebhooks": "webhooks_pkey", "countBatches": "batches_pkey",
		"countTombstones": "tombstones_pkey",
	} {
		add(name, id+`, `+id+`, 10000`, use{key, "id > "})
		p := plans[name]
		p.counts = true
		plans[name] = p
	}
	add("eraseSessions", id+`, 500`, use{"testbed_sessions_pkey", "client_id = "})
	add("eraseExchanges", id+`, 500`, use{"testbed_exchanges_pkey", "client_id = "})
	add("eraseFaults", id+`, 500`, use{"testbed_faults_pkey", "client_id = "})
	add("countErased", id, use{"jobs_client", "client_id = "}, use{"events_client", "client_id = "},
		use{"client_events_client", "client_id = "},
		use{"bulk_operations_client", "client_id = "}, use{"schedules_client", "client_id = "},
		use{"idempotency_keys_pkey", "client_id = "}, use{"api_keys_client", "client_id = "},
		use{"clients_pkey", "client_id = "})
}
