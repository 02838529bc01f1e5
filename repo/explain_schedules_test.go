package repo_test

// seedSchedules are 3,000 schedules of some clients, of which a tenth is paused and the others are due in the coming hours.
const seedSchedules = `
INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up, catch_up_max, job, language, request_id,
	paused, created_at, updated_at, due_at, look_at)
SELECT id, md5((i % 50)::text)::uuid, '', '* * * * *', '', 0, 'skip', 'none', 1, '{}', 'en', 'r', i % 10 = 0, at, at,
	CASE WHEN i % 10 > 0 THEN now() + i * interval '10 s' END, CASE WHEN i % 10 > 0 THEN now() + i * interval '10 s' END
FROM n WHERE i <= 3000;
`

// How schedules find their rows.
func init() {
	const id = `'` + nobody + `'`
	add := func(name, args string, uses ...use) {
		p := plans[name]
		p.args, p.uses = args, uses
		plans[name] = p
	}
	one := use{"schedules_pkey", "schedule_id = "}
	const definition = `'', '* * * * *', '', NULL, 0, NULL, NULL, 'skip', 'none', 1, '{}', 'en', false, now(), now()`
	add("insertRuns", arrays("uuid", "uuid", "x", "x", "null", "null", "1", "t", "null", "x", "x", "x", "x", "x", "x", "x", "uuid", "null")+
		`, '1 day', `+arrays("uuid", "uuid", "null"))
	add("countSchedules", id, use{"schedules_client", "client_id = "})
	add("insertSchedule", id+`, `+id+`, 'r', now(), `+definition)
	add("readSchedule", id+`, `+id, one)
	add("lockSchedule", id+`, `+id, one)
	add("updateSchedule", id+`, `+definition+`, NULL, false`, one)
	add("deleteSchedule", id+`, `+id, one)
	add("listSchedules", id+`, '`+lastID+`', 51`, use{"schedules_client", "client_id = "})
	add("listAllSchedules", `'`+lastID+`', 51`, use{"schedules_pkey", "schedule_id < "})
	add("nextLook", ``, use{"schedules_due", ""})
	for _, name := range []string{"dueSchedules", "dueSchedulesInTime"} {
		add(name, `1000`, use{"schedules_due", "look_at <= now()"}, use{"jobs_schedule_open", "schedule_id = "})
	}
	add("advanceSchedules", arrays("uuid", "1", "null", "null", "null", "f", "1", "1", "1", "null", "null", "null"),
		use{"schedules_pkey", "schedule_id = "})
	add("deferSchedules", arrays("uuid", "1")+`, '1 s'`, use{"schedules_pkey", "schedule_id = "})
	add("eraseSchedules", id+`, 500`, use{"schedules_client", "client_id = "}, use{"schedules_pkey", "schedule_id = ANY"})
	for _, name := range []string{"advanceSchedules", "deferSchedules"} { // left to itself, the planner would read a table of this size
		p := plans[name]
		p.counts = true
		plans[name] = p
	}
}
