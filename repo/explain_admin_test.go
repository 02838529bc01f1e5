package repo_test

// How operators' lists find their rows: each along the index that has its order, however few of the rows match.
func init() {
	const id, anID = `'` + nobody + `'`, `'` + busy + `'`
	const filters = `NULL, NULL, 'FAILED', NULL, NULL, NULL, NULL, NULL, NULL, `
	newest := `'infinity', '` + lastID + `', ` + id
	soonest := `'-infinity', ` + id + `, ` + id
	add := func(name, args string, counts bool, uses ...use) {
		p := plans[name]
		p.args, p.uses, p.counts = args, uses, counts
		plans[name] = p
	}
	owned := anID + `, ` + anID + `, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ` + newest
	for name, way := range map[string]struct {
		args string
		use
	}{
		"anyJobs":       {filters + newest, use{"jobs_pkey", "job_id <"}},
		"clientJobs":    {owned, use{"jobs_client", "ROW(client_id, job_id) <"}},
		"batchJobs":     {owned, use{"jobs_batch", "ROW(batch_id, job_id) <"}},
		"endedJobs":     {filters + newest, use{"jobs_ended", "finished_at"}},
		"queuedJobs":    {filters + soonest, use{"jobs_waiting", "ROW(run_at, job_id) >"}},
		"scheduledJobs": {filters + soonest, use{"jobs_scheduled", "ROW(execution_at, job_id) >"}},
		"heldJobs":      {filters + newest, use{"jobs_held", ""}},
	} {
		add(name, way.args+`, 51`, false, way.use)
		add(name+"Count", way.args+`, 100000`, true, way.use)
	}
	add("readAnyJob", anID+`, 1000, 101`, false, byKey, use{"events_pkey", "job_id = "}, use{"reports_pkey", "job_id = "},
		use{"results_pkey", "job_id = "}, use{"deliveries_job", "ROW(job_id, delivery_id) <="})
	add("readJobOwner", anID, false, byKey)
	add("allWorkers", `NULL, '`+lastID+`', 51, 100`, false, use{"jobs_held", "worker_id = "})
	add("groupQueues", `NULL, NULL, 100000, 1000`, true, use{"jobs_waiting", ""})
	add("groupFailures", `NULL, NULL, NULL, '2000-01-01', 'infinity', 100000, 1000`, true, use{"jobs_ended", "finished_at"})
	add("allClients", `NULL, '`+lastID+`', 100000, 51`, true, use{"jobs_waiting", ""}, use{"jobs_held", ""},
		use{"webhooks_client", "client_id = "})
	add("anyWebhooks", `NULL, NULL, NULL, '`+lastID+`', 51`, true, use{"webhooks_pkey", "webhook_id <"})
	add("oneWebhook", anID+`, NULL, NULL, '`+lastID+`', 2`, false, use{"webhooks_pkey", "webhook_id = "})
	add("clientsWebhooks", `NULL, `+anID+`, NULL, '`+lastID+`', 51`, false, use{"webhooks_client", "ROW(client_id, webhook_id) <"})
	delivered := `NULL, ` + anID + `, NULL, NULL, NULL, NULL, '` + lastID + `', ` + id + `, 51`
	add("anyDeliveries", `NULL, NULL, 'FAILED', NULL, NULL, NULL, '`+lastID+`', `+id+`, 51`, true, use{"deliveries_pkey", "delivery_id <"})
	add("webhookDeliveries", delivered, false, use{"deliveries_webhook", "ROW(webhook_id, delivery_id) <"})
	add("jobDeliveries", delivered, false, use{"deliveries_job", "ROW(job_id, delivery_id) <"})
	add("readAnyDelivery", anID+`, 100`, false, use{"deliveries_pkey", "delivery_id = "}, use{"delivery_attempts_pkey", "delivery_id = "})
	add("allBatches", anID+`, NULL, NULL, '`+lastID+`', `+id+`, 51`, true, use{"batches_pkey", "batch_id <"})
	add("readAnyBatch", anID, false, use{"batches_pkey", "batch_id = "}, use{"jobs_batch", "batch_id = "})
	add("readMark", `10000`, true, use{"jobs_pkey", ""}, use{"jobs_ended", ""}, use{"deliveries_pkey", ""}, use{"audit_pkey", ""},
		use{"jobs_held", ""})
	add("auditBegin", anID+`, 'ann', 'retry_job', 'job', 'x', 'r', '{}'`, false)
	add("auditEnd", anID+`, 200, NULL`, true, use{"audit_pkey", "audit_id = "})
	add("auditList", `'ann', NULL, NULL, NULL, NULL, '`+lastID+`', `+id+`, 51`, true, use{"audit_pkey", "audit_id <"})
	add("cleanAudit", `'1 day', 500`, true, use{"audit_pkey", ""})
	add("readSystem", `100000, `+id+`, `+id+`, 10000`, true, use{"jobs_waiting", "run_at <= now()"},
		use{"jobs_scheduled", ""}, use{"jobs_held", ""},
		use{"deliveries_waiting", "ROW(client_id, endpoint_id) >"}, use{"deliveries_claimed", ""})
	add("readSituation", `100000, `+id+`, `+id+`, 10000`, true, use{"jobs_waiting", "run_at <= now()"}, use{"jobs_waiting", ""},
		use{"jobs_scheduled", ""}, use{"jobs_held", ""}, use{"jobs_held", "worker_id = "}, use{"jobs_throttled", ""},
		use{"jobs_throttled", "client_id > "}, use{"deliveries_waiting", "ROW(client_id, endpoint_id) >"}, use{"webhooks_client", ""},
		use{"webhooks_pkey", "webhook_id = "})
	add("missingHistory", `'15 min'`, false)
	add("writeHistory", `now(), `+id+`, '`+lastID+`', 200000`, false, use{"jobs_pkey", "job_id >="}, use{"jobs_ended", "finished_at >="})
	add("rollUpHistory", `'16 min'`, false)
	add("readHistory", `10, '15 min', '10 s'`, false)
	add("sumHistory", `'24 h'`, false)
	add("cleanHistory", `'48 h', 500`, false)
}
