package repo_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) backlog(limit int) job.Backlog {
	f.t.Helper()
	c, err := f.store.Backlog(f.ctx(), limit)
	require.NoError(f.t, err)
	return c
}

func TestCensusOfNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.expireWorker(f.worker)
	require.Equal(t, job.Backlog{Jobs: map[job.State]int{job.Created: 0, job.Queued: 0, job.Assigned: 0, job.Running: 0}, Epoch: 1},
		f.backlog(100))
}

// What it counts by its indexes is what there is by the states of the rows.
func TestCensusCountsWhatIsThere(t *testing.T) {
	t.Parallel()
	f := setup(t)
	r := rand.New(rand.NewPCG(1, 2))
	hooks := f.someWebhooks(r, 5)
	for range 6 {
		for range 20 {
			id := f.force(job.States[r.IntN(len(job.States))])
			f.exec(`UPDATE jobs SET run_at = execution_at + $2 * interval '1 s' WHERE job_id = $1`, id.String(), r.IntN(3)*3600)
		}
		for range 20 {
			f.someDelivery(r, hooks)
		}
		w := newID()
		f.exec(`INSERT INTO workers (worker_id, name, concurrency, state, expires_at) VALUES ($1, 'w', $2, $3, now() + $4 * interval '1 h')`,
			w.String(), 1+r.IntN(9), []string{"ALIVE", "DEAD", "STOPPED"}[r.IntN(3)], r.IntN(2)*2-1)
		f.exec(`UPDATE maintenance_state SET epoch = epoch + 1`)
		c := f.backlog(1000)
		for s, n := range c.Jobs {
			require.Equal(t, one[int](f, `SELECT count(*)::int FROM jobs WHERE state = $1`, string(s)), n, s)
		}
		require.Len(t, c.Jobs, 4)
		require.Equal(t, one[int64](f, `SELECT epoch FROM maintenance_state`), c.Epoch)
		require.Equal(t, one[int](f, `SELECT count(*)::int FROM workers WHERE state = 'ALIVE' AND expires_at > now()`), c.Workers)
		require.Equal(t, one[int](f, `SELECT sum(concurrency)::int FROM workers WHERE state = 'ALIVE' AND expires_at > now()`), c.Slots)
		require.Equal(t, one[int](f, `SELECT count(*)::int FROM deliveries WHERE state = 'PENDING'`), c.Deliveries)
		require.Equal(t, one[int](f, `SELECT count(*)::int FROM webhooks WHERE disabled_reason IN ('GONE', 'FAILING') AND deleted_at IS NULL`),
			c.DisabledWebhooks)
		f.requireAge(c.OldestDue, `SELECT min(run_at) FROM jobs WHERE state IN ('CREATED', 'QUEUED') AND run_at <= now()`)
		f.requireAge(c.OldestDelivery, `SELECT min(next_attempt_at) FROM deliveries WHERE state = 'PENDING' AND claimed_until IS NULL
			AND next_attempt_at <= now()`)
	}
}

// requireAge checks an age against the time that a query tells, if it tells any.
func (f *fixture) requireAge(age time.Duration, sql string) {
	f.t.Helper()
	since := one[*time.Time](f, sql)
	if since == nil {
		require.Zero(f.t, age)
		return
	}
	require.InDelta(f.t, time.Since(*since).Seconds(), age.Seconds(), 30)
}

// someWebhooks makes webhooks in all states.
func (f *fixture) someWebhooks(r *rand.Rand, each int) (ids []job.ID) {
	f.t.Helper()
	for _, reason := range []string{"", "OWNER", "GONE", "FAILING"} {
		for range each {
			id := newID()
			f.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at,
				deleted_at, disabled_at, disabled_reason)
				VALUES ($1, $2, 'u', '{*}', '', 'binary', 'x', now(), now(), CASE WHEN $3 THEN now() END, CASE WHEN $4 <> '' THEN now() END,
					nullif($4, ''))`,
				id.String(), newID().String(), r.IntN(3) == 0, reason)
			ids = append(ids, id)
		}
	}
	return ids
}

// someDelivery makes a delivery that waits since or for some hours, is being
// sent, or is settled.
func (f *fixture) someDelivery(r *rand.Rand, hooks []job.ID) {
	f.t.Helper()
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, state,
		next_attempt_at, claimed_until, settled_at)
		SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'x', now(),
			CASE WHEN $2 = 2 THEN 'DELIVERED' ELSE 'PENDING' END,
			CASE WHEN $2 < 2 THEN now() + $3 * interval '1 h' END, CASE WHEN $2 = 1 THEN now() END, CASE WHEN $2 = 2 THEN now() END
		FROM webhooks WHERE webhook_id = $1`, hooks[r.IntN(len(hooks))].String(), r.IntN(3), r.IntN(100)-50)
}

// A backlog is counted up to the limit, and read no further.
func TestCensusIsBounded(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const rows, limit = 20_000, 100
	for state, queued := range map[string]string{"CREATED": "NULL", "QUEUED": "now()"} {
		f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, max_attempts, auto_retry, event_seq, created_at, updated_at,
			execution_at, run_at, queued_at, language, request_id)
			SELECT gen_random_uuid(), gen_random_uuid(), 'DEFERRED', 'SUCCESS_FAST', $1, 4, false, 2, now(), now(), at, at, `+queued+`, 'en', 'r'
			FROM (SELECT now() + CASE WHEN $1 = 'CREATED' THEN interval '1 hour' ELSE - i * interval '1 s' END AS at FROM generate_series(1,
				$2) i) v`, state, rows)
	}
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, state, max_attempts, auto_retry, event_seq, created_at, updated_at, run_at,
		queued_at, started_at, worker_id, language, request_id)
		SELECT gen_random_uuid(), gen_random_uuid(), 'EXECUTE', 'SUCCESS_FAST', 'RUNNING', 4, false, 2, now(), now(), now(), now(), now(),
			gen_random_uuid(), 'en', 'r' FROM generate_series(1, $1)`, rows)
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, url, job_id, seq, event_id, event_name, created_at, next_attempt_at,
		claimed_until)
		SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'u', gen_random_uuid(), 1, gen_random_uuid(), 'x', now(),
			now() - i * interval '1 s', CASE WHEN i % 2 = 0 THEN now() END
		FROM generate_series(1, $1) i`, rows)
	f.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, disabled_at,
		disabled_reason)
		SELECT gen_random_uuid(), gen_random_uuid(), 'u', '{*}', '', 'binary', 'x', now(), now(), now(), 'GONE' FROM generate_series(1, $1)`,
		rows)
	require.Equal(t, map[job.State]int{job.Created: rows, job.Queued: rows, job.Assigned: 0, job.Running: rows}, f.backlog(2*rows).Jobs)
	c := f.backlog(limit)
	require.Equal(t, map[job.State]int{job.Created: limit, job.Queued: 0, job.Assigned: 0, job.Running: limit}, c.Jobs,
		"never more than there are")
	require.Equal(t, []int{limit, limit}, []int{c.Deliveries, c.DisabledWebhooks})
	require.InDelta(t, rows, c.OldestDue.Seconds(), 60, "the oldest is found whatever the limit")
	require.InDelta(t, rows, c.OldestDelivery.Seconds(), 60, "and so is the oldest delivery of 10,000 endpoints")

	args := `'` + nobody + `', '` + nobody + `', 10, 100`
	for table, most := range map[string]int{"jobs": 3*limit + 1, "deliveries": 2*limit + 10, "webhooks": limit} {
		require.LessOrEqual(t, f.reads(table, repo.Statements["backlog"], args), 3*most+10, table)
	}
}
