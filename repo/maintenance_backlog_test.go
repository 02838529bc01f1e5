package repo_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) backlog(limit int) job.Backlog { return must(f.store.Backlog(f.ctx(), limit))(f.t) }

func TestCensusOfNothing(t *testing.T) {
	f := setup(t)
	f.expireWorker(f.worker)
	require.Equal(t, job.Backlog{Jobs: map[job.State]int{job.Created: 0, job.Queued: 0, job.Assigned: 0, job.Running: 0}, Epoch: 1},
		f.backlog(100))
}

// What it counts by its indexes is what there is by the states of the rows.
func TestCensusCountsWhatIsThere(t *testing.T) {
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
	since := one[*time.Time](f, sql)
	if since == nil {
		require.Zero(f.t, age)
		return
	}
	require.InDelta(f.t, time.Since(*since).Seconds(), age.Seconds(), testkit.Patience.Seconds())
}

// someWebhooks makes webhooks in all states.
func (f *fixture) someWebhooks(r *rand.Rand, each int) (ids []job.ID) {
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

// someDelivery makes a delivery that waits since or for some hours, is being sent, or is settled.
func (f *fixture) someDelivery(r *rand.Rand, hooks []job.ID) {
	f.exec(`INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, state,
		next_attempt_at, claimed_until, settled_at)
		SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'x', now(),
			CASE WHEN $2 = 2 THEN 'DELIVERED' ELSE 'PENDING' END,
			CASE WHEN $2 < 2 THEN now() + $3 * interval '1 h' END, CASE WHEN $2 = 1 THEN now() END, CASE WHEN $2 = 2 THEN now() END
		FROM webhooks WHERE webhook_id = $1`, hooks[r.IntN(len(hooks))].String(), r.IntN(3), r.IntN(100)-50)
}

// A backlog is counted up to the limit, and read no further.
func TestCensusIsBounded(t *testing.T) {
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

	ids := `'` + nobody + `', '` + nobody + `', 10`
	for table, most := range map[string]int{"jobs": 3*limit + 1, "deliveries": 2*limit + 10, "webhooks": limit} {
		require.LessOrEqual(t, f.reads(table, repo.Statements["readBacklog"], ids+`, 100`), 3*most+10, table)
		require.LessOrEqual(t, f.reads(table, repo.Statements["adminSituation"], `100, `+ids), 6*most+10, table)
	}
}

func streaming(c *repo.Config) { c.OutcomeStream = true }

func (f *fixture) outcomes(limit int) []job.OutcomeMessage {
	return must(f.store.UnpublishedOutcomes(f.ctx(), limit))(f.t)
}

func TestOutcomesWaitForTheStream(t *testing.T) {
	f := setup(t, streaming)
	l := f.run()
	end := withRetry(failure(l, job.FailedOnce), 0)
	f.finish(end)
	f.finish(success(f.claim(l.JobID, 2)))
	canceled := f.submit()
	f.cancel(canceled)

	messages := f.outcomes(10)
	require.Len(t, messages, 3)
	first := messages[0]
	require.Equal(t, []any{l.JobID, 1, job.OutcomeFailed, job.Failed}, []any{first.JobID, first.Attempt, first.Ended.Outcome,
		first.Ended.State})
	require.Equal(t, end.Failure, first.Ended.Failure)
	require.Equal(t, f.job(l.JobID).Origin(), first.Origin)
	require.Equal(t, job.OutcomeSuccess, messages[1].Ended.Outcome)
	require.Equal(t, job.OutcomeCanceled, messages[2].Ended.Outcome)
	f.checkInvariants()

	require.Len(t, f.outcomes(2), 2)
	require.NoError(t, f.store.MarkPublished(f.ctx(), messages[:2]))
	require.NoError(t, f.store.MarkPublished(f.ctx(), messages[:2]))
	require.Equal(t, messages[2:], f.outcomes(10))
	require.Equal(t, 2, must(f.store.RepublishOutcomes(f.ctx()))(t))
	require.Equal(t, messages, f.outcomes(10))

	require.NoError(t, f.store.MarkPublished(f.ctx(), messages))
	f.exec(`UPDATE outcome_outbox SET published_at = published_at - interval '1 minute' WHERE attempt = 2`)
	f.clean(1)
	require.Equal(t, 3, f.count("outcome_outbox"), "whoever published them removes them")
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, 2, f.count("outcome_outbox"))
	require.NoError(t, f.store.Delete(f.ctx(), f.client, canceled))
	require.Equal(t, 1, f.count("outcome_outbox"), "it goes with its job")
	f.exec(`INSERT INTO outcome_outbox VALUES (gen_random_uuid(), 1, now())`)
	require.Empty(t, f.outcomes(10))
	require.Equal(t, 1, f.count("outcome_outbox"))
}

// All is published again, and all is removed, however much it is.
func TestManyOutcomes(t *testing.T) {
	f := setup(t)
	const many = 11_000
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 1, now(), now() - interval '1 hour' FROM generate_series(1, $1::int)`, many)
	f.exec(`INSERT INTO outcome_outbox SELECT job_id, 2, now(), CASE WHEN substring(job_id::text FROM 1 FOR 1) > '7' THEN now() END
		FROM outcome_outbox`)
	waiting := one[int](f, `SELECT count(*)::int FROM outcome_outbox WHERE published_at IS NULL`)
	unlock := f.lock(`SELECT FROM outcome_outbox WHERE published_at < now() - interval '1 minute' ORDER BY job_id LIMIT 1 FOR UPDATE`)
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, many+1, f.count("outcome_outbox"), "what somebody has locked is left for later")
	unlock()
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, many, f.count("outcome_outbox"))
	f.exec(`UPDATE outcome_outbox SET published_at = now() WHERE published_at IS NULL AND attempt = 2`)
	require.Equal(t, many, must(f.store.RepublishOutcomes(f.ctx()))(t))
	require.NotZero(t, waiting)
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM outcome_outbox WHERE published_at IS NOT NULL`))
}

// Outcomes that are just being removed are waited for, and do not end the search.
func TestRepublishWaits(t *testing.T) {
	f := setup(t)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 1, now(), now() - interval '1 hour' FROM generate_series(1, 5000)`)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 2, now(), now()`)
	tx := must(f.db.Begin(f.ctx()))(t)
	must(tx.Exec(f.ctx(), `DELETE FROM outcome_outbox WHERE attempt = 1`))(t)
	done := make(chan int, 1)
	go func() {
		n, err := f.store.RepublishOutcomes(f.ctx())
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.Equal(t, 1, <-done)
}

// What belongs to a job goes with it, its deliveries included.
func TestRemovedJobsTakeTheirDeliveries(t *testing.T) {
	f := setup(t, streaming)
	hook := f.subscribe("*")
	callback := func(s *job.Submission) { s.Job.Callback = "http://cb.test" }
	deleted, old, kept := f.run(callback), f.run(callback), f.run(callback)
	for _, l := range []job.Lease{deleted, old, kept} {
		f.finish(success(l))
	}
	held := f.claimAll(hook, 1)[0]
	f.deliverAll()
	require.NoError(t, f.store.Delete(f.ctx(), f.client, deleted.JobID))
	_, err := f.store.RecordDelivery(f.ctx(), delivered(held))
	require.ErrorIs(t, err, job.ErrStale)
	f.age(old.JobID, month+time.Second)
	f.clean(100)
	require.Equal(t, kept.JobID.String(), one[string](f, `SELECT string_agg(DISTINCT job_id::text, ' ') FROM deliveries`))
	require.Equal(t, 10, f.count("deliveries"))
	require.Equal(t, 10, f.count("delivery_attempts"))
	require.Equal(t, 1, f.count("outcome_outbox"))

	f.testWebhook(hook)
	f.deliverAll()
	f.exec(`UPDATE client_events SET occurred_at = occurred_at - $1::interval`, month)
	f.clean(100)
	require.Zero(t, f.count("client_events"))
	require.Equal(t, 10, f.count("deliveries"))
	f.checkInvariants()
}

// A job with many deliveries is removed bit by bit.
func TestCleanRemovesManyDeliveries(t *testing.T) {
	f := setup(t)
	for range 9 {
		f.subscribe("*")
	}
	id, kept := f.at(job.Succeeded), f.at(job.Succeeded)
	f.deliverAll()
	f.age(id, month+time.Second)
	require.True(t, must(f.store.Clean(f.ctx(), 1))(t))
	require.Equal(t, 45+25, f.count("deliveries"))
	require.NotZero(t, f.job(id))
	f.clean(1)
	require.Equal(t, 45, f.count("deliveries"))
	_, err := f.store.Job(f.ctx(), f.client, id)
	require.Equal(t, job.CodeJobGone, job.CodeOf(err))
	require.NotZero(t, f.job(kept))
	f.checkInvariants()
}

// A delivery whose event is gone all the same is not sent, and not kept.
func TestDeliveryWithoutItsEvent(t *testing.T) {
	f := setup(t)
	hook := f.subscribe("*")
	f.submit()
	f.exec(`UPDATE deliveries SET seq = 77 WHERE seq = 1`)
	p := f.claimAll(hook, 10)
	require.Len(t, p, 1)
	require.Equal(t, 2, p[0].Seq)
	require.Equal(t, 1, f.count("deliveries"))
}
