package repo_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
)

// seed fills a database as it is after some days: 20,000 ended jobs with all
// that belongs to them, 1,000 that wait, 2,000 scheduled ones, 200 held.
const seed = `
CREATE TEMP TABLE n AS SELECT i, uuid7(now() - i * interval '1 s') AS id, now() - i * interval '1 minute' AS at FROM generate_series(1,
	20000) i;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq,
  created_at, updated_at, run_at, queued_at, assigned_at, started_at, finished_at, language, request_id)
SELECT id, gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{"duration_ms": 1000}', 'SUCCEEDED', 'SUCCESS', 4, false, 5,
  at, at, at, at, at, at, at, 'en', 'r' FROM n;
INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
SELECT id, CASE WHEN i % 4 = 0 THEN '` + busy + `' ELSE gen_random_uuid() END,
	s, gen_random_uuid(), 'x', 1, at, '{"work_kind": "SUCCESS_FAST"}' FROM n, generate_series(1, 5) s;
INSERT INTO client_events (event_id, client_id, event_name, occurred_at, batch_id, data)
SELECT gen_random_uuid(), CASE WHEN i % 4 = 0 THEN '` + busy + `' ELSE gen_random_uuid() END, 'batch.completed', at, id, '{}' FROM n;
INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused, status, completed_at, succeeded, failed,
	canceled, failures)
SELECT id, gen_random_uuid(), at, 'en', 'r', '[]', 0, 'COMPLETED', at, 1, 0, 0, '[]' FROM n;
INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq) SELECT id, 1, 'SUCCESS', at, at, 0, 5
	FROM n;
INSERT INTO results SELECT id, 1, 'text/plain', 4, sha256('abcd'), at + interval '1 day', 'abcd' FROM n;
INSERT INTO idempotency_keys SELECT gen_random_uuid(), 'jobs', i::text, 'hash', id, 'QUEUED', at, at + interval '1 day' FROM n;
INSERT INTO tombstones SELECT gen_random_uuid(), gen_random_uuid(), at FROM n;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	execution_at, run_at, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'DEFERRED', 'SUCCESS_FAST', '{}', 'CREATED', 4, false, 1, at, at, now() + i * interval '1 minute',
	now() + i * interval '1 minute', 'en', 'r'
FROM n WHERE i <= 2000;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	run_at, queued_at, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{}', 'QUEUED', 4, false, 2, now(), now(), now() - i * interval '1 ms',
	now(), 'en', 'r' FROM n WHERE i <= 1000;
INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
SELECT gen_random_uuid(), 'w', 1, CASE WHEN i < 10 THEN 'ALIVE' ELSE 'DEAD' END, now() + interval '1 hour' FROM n WHERE i <= 20;
INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
	run_at, queued_at,
  started_at, worker_id, fence, language, request_id)
SELECT uuid7(at), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', '{}', CASE WHEN i % 2 = 0 THEN 'RUNNING' ELSE 'ASSIGNED' END, 4, false, 4,
	at, at, at, at, at,
  (SELECT worker_id FROM workers ORDER BY worker_id OFFSET i % 20 LIMIT 1), 1, 'en', 'r' FROM n WHERE i <= 200;
` + seedWebhooks + seedBulks + seedSchedules + seedErasures + seedFaults + `
ANALYZE`

// bigTables are never read as a whole.
var bigTables = []string{"jobs", "events", "reports", "results", "idempotency_keys", "tombstones", "client_events", "batches",
	"webhooks", "deliveries", "delivery_attempts", "outcome_outbox", "bulk_operations", "bulk_items", "erasures", "schedules"}

// use is an index that a statement must search a table by, with a condition
// that narrows the search down.
type use struct{ index, condition string }

// byKey is how transitions find their jobs.
var byKey = use{"jobs_pkey", "job_id = "}

// byKeys is the same of an array.
var byKeys = use{"jobs_pkey", "job_id = ANY"}

// plans says how each statement must find its rows, given arguments of the
// usual size.
var plans = map[string]struct {
	args string
	uses []use
	// sized: left to itself, the planner would read a table of this size as a
	// whole if it did not know the limit.
	sized bool
	// counts: it reads so many rows that the planner, left to itself, would read
	// such a table as a whole.
	counts bool
}{
	"step":       {args: stepArguments, uses: []use{byKey}},
	"stepWithin": {args: stepArguments + `, 5`, uses: []use{byKey, {"jobs_held", ""}, {"jobs_throttled", "job_id < "}}},
	"resumeThrottled": {args: `5, 50000, 1000`, uses: []use{{"jobs_throttled", ""}, {"jobs_throttled", "client_id > "},
		{"jobs_throttled", "client_id = "}, {"jobs_held", ""}, {"jobs_waiting", "run_at <= now()"}}},
	"putJobsAside":  {args: `ARRAY[gen_random_uuid()]`, uses: []use{byKeys}},
	"jobsAside":     {args: `'` + nobody + `', 1000`, uses: []use{{"jobs_paused", "job_id > "}}},
	"resumeJobs":    {args: `ARRAY[gen_random_uuid()]`, uses: []use{byKeys}},
	"whyUnchanged":  {args: arrays("uuid", "uuid"), uses: []use{byKey}},
	"readHeld":      {args: `'` + nobody + `', ` + arrays("uuid", "1", "1"), uses: []use{byKey}},
	"claimedBefore": {args: arrays("uuid", "1", "uuid"), uses: []use{byKey}},
	"cancel":        {args: arrays("uuid", "uuid"), uses: []use{byKey}},
	"emit": {args: `uuid7(now()), 1, 1, 0, gen_random_uuid(), '{}', NULL`,
		uses: []use{byKey, {"events_pkey", "job_id = "}}},
	"retry":       {args: arrays("uuid", "uuid", "1", "1s", "x"), uses: []use{byKey}},
	"retryAnyway": {args: arrays("uuid", "uuid", "1", "1s", "x"), uses: []use{byKey}},
	"release":     {args: arrays("uuid", "1", "1", "1s"), uses: []use{byKey}},
	"insert": {args: arrays("uuid", "uuid", "x", "x", "null", "null", "1", "t", "null", "x", "x", "x", "x", "x", "x", "x", "uuid", "null") +
		`, '1 day', ` + arrays("uuid"),
		uses: nil},
	"redispatch":       {args: arrays("uuid", "1", "1"), uses: []use{byKey}},
	"queueDue":         {args: `2000, ARRAY[gen_random_uuid()]`, uses: []use{{"jobs_scheduled", "execution_at <= now()"}}},
	"waiting":          {args: `'-infinity', '` + nobody + `', '60 s', 500`, uses: []use{{"jobs_waiting", "run_at <= (now() +"}}},
	"moveStrandedJobs": {args: `'-infinity', '` + nobody + `', 5000`, uses: []use{{"jobs_waiting", "run_at > (now() +"}, byKey}},
	"orphans":          {args: `500`, uses: []use{{"jobs_held", "worker_id = ANY"}}},
	"countDue":         {args: `50001`, uses: []use{{"jobs_waiting", "run_at <= now()"}}, sized: true},
	"load":             {args: `1000001`, uses: []use{{"jobs_waiting", ""}, {"jobs_held", ""}}, sized: true},
	"unfinished":       {args: `'` + nobody + `', 1000`, uses: []use{{"jobs_waiting", ""}, {"jobs_held", ""}}, sized: true},
	"loadByClient":     {args: `1000001, 0`, uses: []use{{"jobs_waiting", ""}, {"jobs_held", ""}}, sized: true},
	"backlog": {args: `'` + nobody + `', '` + nobody + `', 10000, 100000`, uses: []use{
		{"jobs_waiting", "run_at <= now()"}, {"jobs_waiting", ""}, {"jobs_scheduled", ""}, {"jobs_held", ""},
		{"deliveries_waiting", "ROW(client_id, endpoint_id) >"}, {"deliveries_waiting", ""}, {"deliveries_claimed", ""}, {"webhooks_client", ""},
	}, counts: true},
	"cleanJobs": {args: `'13 days', 500`, uses: []use{
		{"jobs_ended", "finished_at <= (now() -"}, {"jobs_pkey", "job_id = ANY"}, {"events_pkey", "job_id = ANY"},
		{"reports_pkey", "job_id = ANY"}, {"results_pkey", "job_id = ANY"}, {"outcome_outbox_pkey", "job_id = ANY"},
	}},
	"cleanResults": {args: `'12 days', 500`, uses: []use{{"results_expiry", "expires_at <= (now() -"}, {"results_pkey", "job_id = ANY"}}},
	"cleanTombstones": {args: `'13 days', 500`, uses: []use{{"tombstones_expiry", "expired_at <= (now() -"},
		{"tombstones_pkey", "job_id = ANY"}}},
	"cleanClientEvents": {args: `'13 days', 500`, uses: []use{{"client_events_age", "occurred_at <= (now() -"},
		{"client_events_pkey", "event_id = ANY"},
		{"deliveries_once", "event_id = "}}},
	"cleanBatches": {args: `'13 days', 500`, uses: []use{{"batches_ended", "completed_at <= (now() -"}, {"batches_pkey", "batch_id = ANY"}}},
	"jobEvents": {args: `'` + nobody + `', '` + nobody + `', 2, 100, 262144`, uses: []use{{"jobs_client", "job_id = "},
		{"events_pkey", "seq = "}, {"reports_pkey", "job_id = "}}},
	"eventSeqs":    {args: arrays("uuid"), uses: []use{{"jobs_pkey", "job_id = ANY"}}},
	"endedBatches": {args: arrays("uuid"), uses: []use{{"batches_pkey", "batch_id = ANY"}}},
	"clientEvents": {args: `'` + busy + `', '1', '` + nobody + `', 0, 100, 262144`, uses: []use{
		{"events_client", "tx < pg_snapshot_xmin("}, {"client_events_client", "tx < pg_snapshot_xmin("},
		{"events_client", "tx >= GREATEST("}, {"client_events_client", "tx >= GREATEST("},
		byKey, {"reports_pkey", "job_id = "},
	}},
	"latestPositions": {args: arrays("uuid"), uses: []use{{"events_client", "client_id = "}, {"client_events_client", "client_id = "}}},
	"cleanIdempotencyKeys": {args: `'12 days', 50`, sized: true, uses: []use{
		{"idempotency_keys_expiry", "expires_at <= (now() -"}, {"idempotency_keys_pkey", "client_id = "},
	}},
}

// busy is a client to whom a large part of what happened belongs.
const busy = "0198c0de-0000-7000-8000-000000000001"

const nobody = "00000000-0000-0000-0000-000000000000"

// stepArguments are finishes.
var stepArguments = arrays("uuid", "1", "SUCCEEDED", "1", "null", "uuid", "x", "x", "t", "1", "x", "x", "1s", "f", "null", "x", "x", "x",
	"null") +
	`, '1 day'`

// arrays makes array arguments of 32 elements each.
func arrays(elements ...string) string {
	for i, e := range elements {
		if e == "uuid" {
			e = nobody
		}
		elements[i] = `'{` + strings.TrimSuffix(strings.Repeat(e+`,`, 32), `,`) + `}'`
	}
	return strings.Join(elements, ", ")
}

// plan is a node of EXPLAIN's answer.
type plan struct {
	NodeType string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Index    string   `json:"Index Name"`
	Cond     string   `json:"Index Cond"`
	SortKey  []string `json:"Sort Key"`
	Rows     float64  `json:"Actual Rows"` // with ANALYZE only
	Plans    []plan
}

func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, child := range p.Plans {
		child.walk(visit)
	}
}

// sortsBy reports whether rows are sorted by exactly these columns below p.
func (p plan) sortsBy(columns ...string) (sorts bool) {
	p.walk(func(node plan) {
		if len(node.SortKey) != len(columns) {
			return
		}
		same := true
		for i, key := range node.SortKey {
			same = same && strings.HasSuffix(key, "."+columns[i])
		}
		sorts = sorts || same
	})
	return sorts
}

// walks reports whether what is below p comes as it is in an index.
func (p plan) walks(index string) bool {
	return slices.ContainsFunc(p.Plans, func(child plan) bool { return child.Index == index })
}

func explain(t *testing.T, f *fixture, conn *pgxpool.Conn, mode, statement, args string) plan {
	t.Helper()
	return explainAs(t, f, conn, "FORMAT JSON", mode, statement, args)
}

func explainAs(t *testing.T, f *fixture, conn *pgxpool.Conn, options, mode, statement, args string) plan {
	t.Helper()
	if args != "" {
		args = "(" + args + ")"
	}
	// Over the simple protocol: several statements, and text for any type.
	results, err := conn.Conn().PgConn().Exec(f.ctx(), fmt.Sprintf(
		`SET plan_cache_mode = %s; PREPARE p AS %s; EXPLAIN (%s) EXECUTE p%s; DEALLOCATE p`,
		mode, statement, options, args)).ReadAll()
	require.NoError(t, err)
	var answer []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(results[2].Rows[0][0], &answer))
	return answer[0].Plan
}

func TestStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const custom, generic = "force_custom_plan", "force_generic_plan"
	// Generic plans are kept. One that was made while the tables were empty is
	// in use until they are analyzed.
	t.Run("before there is anything", func(t *testing.T) { requireIndexes(t, f, f.store.Pool(), generic) })
	f.exec(seed)
	t.Run("as the store is set", func(t *testing.T) { requireIndexes(t, f, f.store.Pool(), custom, generic) })
	t.Run("as the planner likes", func(t *testing.T) { requireIndexes(t, f, f.db, custom, generic) })
}

func requireIndexes(t *testing.T, f *fixture, pool *pgxpool.Pool, modes ...string) {
	t.Helper()
	conn, err := pool.Acquire(f.ctx())
	require.NoError(t, err)
	defer conn.Release()
	for name, statement := range repo.Statements {
		want, ok := plans[name]
		require.True(t, ok, "%s: how does it find its rows?", name)
		for _, mode := range modes {
			if pool == f.db && (want.counts || want.sized && mode == "force_generic_plan") {
				continue
			}
			p := explain(t, f, conn, mode, statement, want.args)
			found := map[use]bool{}
			p.walk(func(node plan) {
				if node.NodeType == "Seq Scan" {
					require.NotContains(t, bigTables, node.Relation, "%s, %s", name, mode)
				}
				for _, u := range want.uses {
					if node.Index == u.index && strings.Contains(node.Cond, u.condition) {
						found[u] = true
					}
				}
			})
			requireLockOrder(t, name, p)
			for _, u := range want.uses {
				require.True(t, found[u], "%s, %s: no search of %s by %q in %+v", name, mode, u.index, u.condition, p)
			}
		}
	}
}

// requireLockOrder checks that who waits for locks takes them in one order, so
// that no two statements wait for each other: jobs, deliveries and webhooks by
// id, outcomes by job and attempt, keys by client and key. Who skips what is
// locked may take them in any order.
func requireLockOrder(t *testing.T, name string, p plan) {
	t.Helper()
	waits := !strings.Contains(repo.Statements[name], "SKIP LOCKED") && !strings.HasPrefix(name, "emit") // which lock one row
	p.walk(func(node plan) {
		switch {
		case node.NodeType == "LockRows" && waits:
			ordered := node.walks("outcome_outbox_pkey") || node.sortsBy("job_id") || node.sortsBy("delivery_id") || node.sortsBy("webhook_id") ||
				node.sortsBy("job_id", "attempt") || node.sortsBy("key_id") || node.walks("clients_pkey") || node.walks("webhooks_client") ||
				node.sortsBy("schedule_id") || node.walks("schedules_pkey") || node.walks("bulk_operations_pkey") || node.walks("testbed_faults_pkey")
			require.True(t, ordered, "%s: %+v", name, node)
		case node.NodeType == "ModifyTable" && node.Relation == "idempotency_keys" && waits:
			require.True(t, node.sortsBy("client_id", "key"), "%s: %+v", name, node)
		}
	})
}

// The relay's renaming touches no indexed column, so it leaves all indexes
// alone.
func TestUpdatesInPlace(t *testing.T) {
	t.Parallel()
	f := setup(t)
	waiting := f.submit().String()
	all, inPlace := updatesOfJobs(t, f, repo.Statements["redispatch"], `'{`+waiting+`}', '{1}', '{0}'`)
	require.Equal(t, 1, all)
	require.Equal(t, 1, inPlace)
	for name, args := range map[string]string{
		"step": `'{` + waiting + `}', '{1}', '{ASSIGNED}', '{0}', '{` + f.worker.String() + `}', '{` + newID().String() + `}'` +
			strings.Repeat(`, '{null}'`, 7) + `, '{f}'` + strings.Repeat(`, '{null}'`, 5) + `, '1 day'`,
		"cancel": `'{` + waiting + `}', '{` + f.client.String() + `}'`,
	} {
		all, inPlace = updatesOfJobs(t, f, repo.Statements[name], args)
		require.Equal(t, 1, all, "%s: one new version of the row", name)
		require.Zero(t, inPlace, "%s moves the job to other indexes", name)
	}
}

// updatesOfJobs runs a statement, rolls it back, and counts the rows of jobs
// that it updated, and those of them that left the indexes alone.
func updatesOfJobs(t *testing.T, f *fixture, statement, args string) (all, inPlace int) {
	t.Helper()
	tx, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(f.ctx())) }()
	count := func() (all, inPlace int) {
		err := tx.QueryRow(f.ctx(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs'`).Scan(&all, &inPlace)
		require.NoError(t, err)
		return all, inPlace
	}
	allBefore, inPlaceBefore := count()
	_, err = tx.Conn().PgConn().Exec(f.ctx(), `PREPARE p AS `+statement+`; EXECUTE p(`+args+`); DEALLOCATE p`).ReadAll()
	require.NoError(t, err)
	all, inPlace = count()
	return all - allBefore, inPlace - inPlaceBefore
}
