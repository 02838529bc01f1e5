package repo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func (f *fixture) clean(limit int) (batches int) {
	for more := true; more; batches++ {
		more = must(f.store.Clean(f.ctx(), limit))(f.t)
	}
	return batches
}

func (f *fixture) count(rows string, args ...any) int {
	return one[int](f, `SELECT count(*)::int FROM `+rows, args...)
}

func (f *fixture) age(id job.ID, by time.Duration) {
	f.exec(`UPDATE jobs SET finished_at = finished_at - $2::interval WHERE job_id = $1`, id.String(), by)
}

const month = 30 * 24 * time.Hour // the jobs' retention in tests

// Promise: contract 8, 15
func TestCleanRemovesAJobWithAllThatBelongsToIt(t *testing.T) {
	f := setup(t)
	old, young, waiting := f.at(job.Succeeded), f.at(job.Succeeded), f.submit()
	f.age(old, month+time.Second)
	f.age(young, month-time.Minute)
	kept := f.all(young) + f.all(waiting)
	require.Equal(t, 1, f.clean(100))

	require.Equal(t, kept, f.all(young)+f.all(waiting))
	for _, table := range []string{"jobs", "events", "reports", "results"} {
		require.Zero(t, f.count(table+` WHERE job_id = $1`, old.String()), table)
	}
	removed := one[time.Time](f, `SELECT expired_at FROM tombstones WHERE job_id = $1 AND client_id = $2`, old.String(), f.client.String())
	require.WithinDuration(t, time.Now(), removed, testkit.Patience)

	requests := f.requests(t.Context())
	for _, name := range []string{"job", "report", "events", "attempts", "result", "cancel", "retry"} {
		var gone *job.Error
		require.ErrorAs(t, requests[name](f.client, resources{job: old}), &gone)
		require.Equal(t, job.CodeJobGone, gone.Code, "%s of the owner", name)
		require.Equal(t, &removed, gone.ExpiredAt, "%s: time of removal", name)
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(requests[name](newID(), resources{job: old})), "%s of another client", name)
	}
	f.exec(`UPDATE tombstones SET expired_at = expired_at - interval '90 days'`)
	f.clean(100)
	require.Equal(t, job.CodeJobNotFound, codeOf(f.store.Job(f.ctx(), f.client, old)), "the tombstone has expired")
}

// Promise: patterns Retention
func TestCleanRemovesFinalJobsOnly(t *testing.T) {
	f := setup(t)
	for _, s := range job.States {
		f.force(s)
	}
	f.exec(`UPDATE jobs SET created_at = '2020-01-01', updated_at = '2020-01-01', execution_at = '2020-01-01', run_at = '2020-01-01',
		queued_at = CASE WHEN queued_at IS NOT NULL THEN timestamptz '2020-01-01' END,
			finished_at = CASE WHEN finished_at IS NOT NULL THEN timestamptz '2020-01-01' END`)
	f.clean(100)
	require.Equal(t, "ASSIGNED CREATED QUEUED RUNNING", one[string](f, `SELECT string_agg(state, ' ' ORDER BY state) FROM jobs`))
	require.Equal(t, 3, f.count("tombstones"))
}

func TestCleanWorksInBoundedBatches(t *testing.T) {
	f := setup(t)
	const n = 7
	for i := range n {
		f.age(f.at(job.Canceled), month+time.Duration(n-i)*time.Minute)
	}
	f.exec(`CREATE TABLE ages AS SELECT job_id, row_number() OVER (ORDER BY finished_at) AS age FROM jobs`)
	for left := n; left > 0; {
		require.Equal(t, left >= 3, must(f.store.Clean(f.ctx(), 3))(t))
		left = max(0, left-3)
		require.Equal(t, left, f.count("jobs"))
		require.Zero(t, f.count(`jobs JOIN ages USING (job_id) WHERE age <= $1`, n-left), "the oldest jobs are removed first")
	}
	require.Equal(t, n, f.count("tombstones"))
}

// Promise: contract 15a
func TestCleanSmallThings(t *testing.T) {
	f := setup(t)
	f.exec(`INSERT INTO clients (client_id) VALUES ($1)`, f.client.String())
	orphaned := f.newWorker() // dead for a long time, but still holds a job
	must2(f.store.Claim(f.ctx(), orphaned, f.submit(), 1))(t)
	f.exec(`UPDATE workers SET state = 'DEAD', expires_at = now() - interval '2 hours' WHERE worker_id = $1`, orphaned.String())

	// Each table gets rows that must be removed and rows that must stay. %[1]d is the row's number, %[2]s its age.
	key := func(id, ended, revoked string) string {
		return `(key_id, client_id, secret_hash, issued_by, created_at, expires_at, revoked_at)
			SELECT '` + id + `%[1]d', client_id, sha256(''), 'CREATED', now(), now() - interval '` + ended + `', ` + revoked + ` FROM clients`
	}
	worker := func(state string) string {
		return `(worker_id, name, concurrency, state, expires_at) VALUES (gen_random_uuid(), 'w', 1, '` + state + `', now() - interval '%[2]s')`
	}
	tests := map[string]struct {
		table, insert string
		goes, stay    []string
	}{
		"idempotency keys": {"idempotency_keys", `(client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
			SELECT gen_random_uuid(), 'jobs', '%[1]d', 'hash', gen_random_uuid(), now(), now() - interval '%[2]s'`,
			[]string{"1 s", "1 day"}, []string{"-1 minute"}},
		"API keys by expiry": {"api_keys", key("e", "%[2]s", "NULL"), []string{"90 days 1 s"}, []string{"89 days", "-1 day"}},
		"API keys by revocation after their end": {"api_keys", key("r", "99 days", "now() - interval '%[2]s'"), []string{"90 days 1 s"},
			[]string{"89 days", "1 s"}},
		"API keys that were revoked before their end": {"api_keys", key("b", "%[2]s", "now() - interval '99 days'"), []string{"90 days 1 s"},
			[]string{"89 days", "-1 day"}},
		"tombstones": {"tombstones", `SELECT gen_random_uuid(), gen_random_uuid(), now() - interval '%[2]s'`,
			[]string{"90 days 1 s", "91 days"}, []string{"89 days"}},
		"events without a job": {"client_events", `(event_id, client_id, event_name, occurred_at, data)
			VALUES (gen_random_uuid(), gen_random_uuid(), 'x', now() - interval '%[2]s', '{}')`,
			[]string{"30 days 1 s", "31 days"}, []string{"29 days"}},
		"ended batches": {"batches", `SELECT gen_random_uuid(), gen_random_uuid(), now() - interval '99 days', NULL, 'en', 'r', '[]', 0,
			'COMPLETED', now() - interval '%[2]s', 1, 0, 0, '[]'`, []string{"30 days 1 hour 1 s", "31 days"}, []string{"30 days 59 minutes"}},
		"open batches": {"batches", `(batch_id, client_id, created_at, language, request_id, items, refused)
			VALUES (gen_random_uuid(), gen_random_uuid(), now() - interval '%[2]s', 'en', 'r', '[]', 0)`, nil, []string{"99 days"}},
		"dead workers":                {"workers", worker("DEAD"), []string{"1 hour 1 s", "2 days"}, []string{"59 minutes"}},
		"stopped workers":             {"workers", worker("STOPPED"), []string{"1 hour 1 s"}, []string{"1 minute"}},
		"workers not yet marked dead": {"workers", worker("ALIVE"), nil, []string{"2 hours"}},
		"history of ten seconds": {"history", `SELECT 10, now() - interval '%[2]s', 0, 0, 0, 0, 0`, []string{"2 hours 1 s", "1 day"},
			[]string{"119 minutes"}},
		"history of minutes": {"history", `SELECT 60, now() - interval '%[2]s', 0, 0, 0, 0, 0`, []string{"48 hours 1 s"}, []string{"47 hours"}},
	}
	want := map[string]int{"workers": 2} // the fixture's worker and the one that holds a job
	for _, test := range tests {
		for i, ago := range append(test.goes, test.stay...) {
			f.exec(fmt.Sprintf(`INSERT INTO `+test.table+` `+test.insert, i, ago))
		}
		want[test.table] += len(test.stay)
	}
	require.Greater(t, f.clean(1), 1)
	for table, n := range want {
		require.Equal(t, n, f.count(table), table)
	}
	require.Len(t, f.orphans(10), 1, "the dead worker's job is still found")
}

func TestMaintenanceSkipsLockedJobs(t *testing.T) {
	f := setup(t)
	for name, test := range map[string]struct {
		submit func() job.ID
		do     func() int
	}{
		"queue due": {func() job.ID { return f.submit(deferred(-time.Minute)) }, func() int { return len(f.queueDue(10)) }},
		"clean": {func() job.ID { id := f.at(job.Canceled); f.age(id, 2*month); return id }, func() int {
			before := f.countJobs()
			f.clean(1)
			return before - f.countJobs()
		}},
	} {
		f.exec(`DELETE FROM jobs`)
		locked := test.submit()
		test.submit()
		unlock := f.lockRow(locked.String())
		require.Equal(t, 1, test.do(), name)
		unlock()
		require.Positive(t, test.do(), name)
	}
}

func TestCleanReportsTrouble(t *testing.T) {
	f := setup(t, impatient)
	unlock := f.lock(`LOCK TABLE tombstones IN ACCESS EXCLUSIVE MODE`)
	f.clientEvent(f.db)
	f.exec(`UPDATE client_events SET occurred_at = occurred_at - $1::interval`, month)
	require.Equal(t, job.CodeDBError, codeOf(f.store.Clean(f.ctx(), 10)))
	require.Zero(t, f.count("client_events"), "other kinds of rows are removed")
	unlock()
	require.Equal(t, 1, f.clean(10))
}

func TestCleanClientEventsAfterTheirDeliveries(t *testing.T) {
	f := setup(t)
	for range 3 {
		f.subscribe("*")
	}
	f.clientEvent(f.db)
	f.clientEvent(f.db)
	requireLeft := func(deliveries, events int) {
		require.Equal(t, []int{deliveries, events}, []int{f.count("deliveries"), f.count("client_events")})
	}
	requireLeft(6, 2)
	f.exec(`UPDATE client_events SET occurred_at = occurred_at - $1::interval`, month)
	unlock := f.lock(`SELECT FROM deliveries ORDER BY event_id LIMIT 1 FOR UPDATE`)
	must(f.store.Clean(f.ctx(), 10))(t)
	requireLeft(1, 1)
	unlock()
	f.clean(10)
	requireLeft(0, 0)
}
