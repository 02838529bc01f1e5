package repo_test

// seedBulks are 2,000 ended operations, 20 open ones, and ten items of each.
const seedBulks = `
INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, created_at, started_at, gathered_at,
	finished_at)
SELECT id, gen_random_uuid(), '', 'retry', '{}', 200, false, 'r', at, at, at, CASE WHEN i > 20 THEN at END FROM n WHERE i <= 2020;
INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq, result, ended_at)
SELECT n.id, m.id, gen_random_uuid(), 1, 5, CASE WHEN m.i % 2 = 0 THEN 'PENDING' ELSE 'SUCCEEDED' END, CASE WHEN m.i % 2 = 1 THEN n.at END
FROM n CROSS JOIN n m WHERE n.i <= 2020 AND m.i <= 10;
`

// How bulk operations find their rows.
func init() {
	const id = `'` + nobody + `'`
	const looked = id + `, ` + id + `, '` + lastID + `', ` + id + `, NULL, NULL, NULL, NULL, NULL, NULL, NULL, now(), 2000`
	add := func(name, args string, uses ...use) {
		p := plans[name]
		p.args, p.uses = args, uses
		plans[name] = p
	}
	add("insertBulk", id+`, `+id+`, '', 'retry', '{}', 200, false, 'r', 10, 100`, use{"bulk_operations_open", ""})
	add("countOpenBulks", id, use{"bulk_operations_open", ""})
	add("openBulks", `1000`, use{"bulk_operations_open", ""})
	add("readBulk", id+`, `+id, use{"bulk_operations_pkey", "bulk_id = "})
	add("lockOpenBulk", id, use{"bulk_operations_open", "bulk_id = "})
	add("finishBulk", id, use{"bulk_operations_open", "bulk_id = "})
	add("abortBulk", id+`, `+id, use{"bulk_operations_open", "bulk_id = "})
	add("listBulksOfClient", id+`, '`+lastID+`', 51`, use{"bulk_operations_client", "client_id = "})
	add("listBulks", `'`+lastID+`', 51`, use{"bulk_operations_pkey", "bulk_id < "})
	add("listBulkItems", id+`, `+id+`, 51`, use{"bulk_items_pkey", "job_id > "})
	add("listBulkItemsWith", id+`, `+id+`, 51, 'FAILED'`, use{"bulk_items_result", "ROW(result, bulk_id, job_id) >"})
	add("nextBulkItems", id+`, `+id+`, 50`, use{"bulk_items_result", "ROW(result, bulk_id, job_id) >"})
	ofClient := []use{{"jobs_client", "ROW(client_id, job_id) <"}, {"jobs_client", "ROW(client_id, job_id) >="}}
	ofBatch := []use{{"jobs_batch", "ROW(batch_id, job_id) <"}, {"jobs_batch", "ROW(batch_id, job_id) >="}, {"batches_pkey", "batch_id = "}}
	ofAll := []use{{"jobs_pkey", "job_id < "}, {"jobs_pkey", "job_id >= "}}
	add("countBulkOfClient", looked+`, 10`, ofClient...)
	add("countBulkOfBatch", looked+`, 10`, ofBatch...)
	add("countBulkOfAll", looked+`, 10`, ofAll...)
	const gathers = looked + `, ` + id + `, NULL, 100000`
	operation := use{"bulk_operations_open", "bulk_id = "}
	add("gatherBulkOfClient", gathers, append(ofClient, operation)...)
	add("gatherBulkOfBatch", gathers, append(ofBatch, operation)...)
	add("gatherBulkOfAll", gathers, append(ofAll, operation)...)
	add("bulkJobs", arrays("uuid"), use{"jobs_pkey", "job_id = ANY"})
	add("deleteItems", arrays("uuid", "1"), byKey, use{"jobs_pkey", "job_id = ANY"},
		use{"events_pkey", "job_id = ANY"}, use{"reports_pkey", "job_id = ANY"}, use{"results_pkey", "job_id = ANY"})
	add("recordItems", id+`, `+arrays("uuid", "SUCCEEDED", "x", "x")+`, `+id+`, `+id,
		use{"bulk_items_pkey", "ROW(bulk_id, job_id) >="}, use{"bulk_operations_pkey", "bulk_id = "})
	add("cleanBulkItems", `'13 days', 500`, use{"bulk_operations_ended", "finished_at <= (now() -"}, use{"bulk_items_pkey", "bulk_id = "})
	add("cleanBulks", `'13 days', 500`, use{"bulk_operations_ended", "finished_at <= (now() -"},
		use{"bulk_operations_pkey", "bulk_id = ANY"})
}
