package repo_test

// How lists, deletes and batches find their rows.
func init() {
	const id = `'` + nobody + `'`
	list := id + `, ` + id + `, ` + id + `, '` + lastID + `', ` + id + `, NULL, NULL, NULL, NULL, NULL, NULL, 51`
	add := func(name, args string, uses ...use) {
		p := plans[name]
		p.args, p.uses = args, uses
		plans[name] = p
	}
	add("listByClient", list, use{"jobs_client", "ROW(client_id, job_id) <"}, use{"jobs_client", "ROW(client_id, job_id) >="})
	add("listByBatch", list, use{"jobs_batch", "ROW(batch_id, job_id) <"}, use{"jobs_batch", "ROW(batch_id, job_id) >="},
		use{"batches_pkey", "batch_id = "})
	add("listBySchedule", list, use{"jobs_schedule", "ROW(schedule_id, job_id) <"}, use{"jobs_schedule", "ROW(schedule_id, job_id) >="},
		use{"jobs_schedule", "(schedule_id = "})
	add("delete", id+`, `+id, byKey, use{"jobs_pkey", "job_id = ANY"},
		use{"events_pkey", "job_id = ANY"}, use{"reports_pkey", "job_id = ANY"}, use{"results_pkey", "job_id = ANY"})
	add("readBatch", id+`, `+id, use{"batches_pkey", "batch_id = "}, use{"jobs_batch", "batch_id = "})
	add("openJobs", id+`, `+id, use{"jobs_batch_open", "batch_id = "}, use{"batches_pkey", "batch_id = "})
	add("readyAfter", id+`, 10000`, use{"batches_open", "batch_id > "}, use{"jobs_batch_open", "batch_id = "})
	add("readyGiven", arrays("uuid"), use{"batches_open", "batch_id = ANY"}, use{"jobs_batch_open", "batch_id = "})
	add("lockGiven", arrays("uuid"), use{"batches_open", "batch_id = ANY"}, use{"jobs_batch_open", "batch_id = "},
		use{"jobs_batch", "batch_id = "})
	add("completeBatches", arrays("uuid", "COMPLETED", "1", "1", "1", "null", "1"), use{"batches_pkey", "batch_id = "})
}
