package repo_test

// seedFaults are 50 rules of each of 200 clients.
const seedFaults = `
INSERT INTO testbed_faults (client_id, position, rule_id, operation, rule, seed)
SELECT n.id, m.i, gen_random_uuid(), CASE WHEN m.i % 2 = 0 THEN 'submitJob' END, '{"match":{},"effect":{"status":503}}', 1
FROM n CROSS JOIN n m WHERE n.i <= 200 AND m.i <= 50;
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
	} {
		known := plans[name]
		known.args, known.uses = p.args, p.uses
		plans[name] = known
	}
}
