package repo_test

// seedFaults are 50 rules of each of 200 clients.
const seedFaults = `
INSERT INTO testbed_faults (client_id, position, rule_id, operation, rule, seed)
SELECT n.id, m.i, gen_random_uuid(), CASE WHEN m.i % 2 = 0 THEN 'submitJob' END, '{"match":{},"effect":{"status":503}}', 1
FROM n CROSS JOIN n m WHERE n.i <= 200 AND m.i <= 50;
INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at, ended_at)
SELECT gen_random_uuid(), n.id, '', 1, '{}', now(), CASE WHEN m.i > 1 THEN now() END FROM n CROSS JOIN n m WHERE n.i <= 200 AND m.i <= 20;
INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
SELECT client_id, session_id, m.i, '{}' FROM testbed_sessions CROSS JOIN n m WHERE ended_at IS NULL AND m.i <= 50;
`

// How the rules of a test bed are found.
func init() {
	const id = `'` + nobody + `'`
	mine := use{"testbed_faults_pkey", "client_id = "}
	for name, p := range map[string]struct {
		args string
		uses []use
	}{
		"removeFaults": {id + `, NULL`, []use{mine}},
		"insertFaults": {id + `, 1, '{}', '{}'`, nil},
		"lockFaults":   {id, nil},
		"listFaults":   {id, []use{mine}},
		"countFaults":  {id + `, 'submitJob'`, []use{mine}},
		"applyFault":   {id + `, 1, ` + id, []use{mine}},

		"startSession":     {id + `, ` + id + `, '', 1, '{}'`, nil},
		"forgetSessions":   {id + `, 20`, []use{{"testbed_sessions_pkey", "client_id = "}, {"testbed_exchanges_pkey", "client_id = "}}},
		"endSession":       {id + `, ` + id, []use{{"testbed_sessions_pkey", "session_id = "}}},
		"listSessions":     {id + `, NULL, 20`, []use{{"testbed_sessions_pkey", "client_id = "}}},
		"recordExchange":   {id + `, '{}', 50000`, []use{{"testbed_sessions_open", "client_id = "}}},
		"sessionExchanges": {id + `, ` + id, []use{{"testbed_exchanges_pkey", "client_id = "}}},
		"sessionJobs":      {id + `, ` + id + `, now(), NULL, 50000`, []use{{"jobs_client", "client_id = "}}},
		"sessionDeliveries": {id + `, ` + id + `, now(), NULL, 50000`,
			[]use{{"jobs_client", "client_id = "}, {"deliveries_job", "job_id = "}, {"delivery_attempts_pkey", "delivery_id = "}}},
		"forgetAnswers": {id + `, 500`, []use{{"idempotency_keys_pkey", "client_id = "}}},
		"expireResult":  {id + `, ` + id, []use{{"results_pkey", "job_id = "}}},
		"sessionKeys":   {id, []use{{"api_keys_client", "client_id = "}}},

		"readClockMove":    {"", nil},
		"moveClock":        {`1, '1 s', '0 s', 1, 1, false`, nil},
		"forgetMoves":      {`1`, nil},
		"anyMoved":         {"", nil},
		"anyDue":           {"", []use{{"jobs_scheduled", "execution_at <= now()"}}},
		"stepInTime":       {plans["step"].args, plans["step"].uses},
		"stepWithinInTime": {plans["stepWithin"].args, plans["stepWithin"].uses},
		"emitInTime":       {plans["emit"].args, plans["emit"].uses},
		"queueDueInTime":   {plans["queueDue"].args, plans["queueDue"].uses},
	} {
		known := plans[name]
		known.args, known.uses = p.args, p.uses
		plans[name] = known
	}
}
