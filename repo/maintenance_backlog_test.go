package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) backlog(limit int) job.Backlog { return must(f.store.Backlog(f.ctx(), limit))(f.t) }

func TestBacklogCountsRows(t *testing.T) {
	f := setup(t)
	f.expireWorker(f.worker)
	require.Equal(t, job.Backlog{Jobs: map[job.State]int{job.Created: 0, job.Queued: 0, job.Assigned: 0, job.Running: 0}}, f.backlog(100))

	for i, s := range job.States {
		for range i + 1 {
			f.force(s)
		}
	}
	const hours = `now() - $1 * interval '1 h'`
	f.exec(`UPDATE jobs SET execution_at = `+hours+`, run_at = `+hours+` WHERE job_id = (SELECT max(job_id::text)::uuid FROM jobs
		WHERE state = 'QUEUED')`, 3)
	f.exec(`UPDATE jobs SET execution_at = `+hours+`, run_at = `+hours+` WHERE state = 'CREATED'`, -5)
	f.exec(`INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
		SELECT gen_random_uuid(), 'w', 7, state, now() + interval '1 h'
		FROM unnest(ARRAY['ALIVE', 'ALIVE', 'DEAD', 'STOPPED']) state`)
	for reason, n := range map[string]int{"'OWNER'": 1, "'GONE'": 2, "'FAILING'": 3} {
		f.insert("webhooks", n, columns{"disabled_reason": reason, "disabled_at": "now()"})
	}
	f.insert("webhooks", 1, columns{"disabled_reason": "'GONE'", "disabled_at": "now()", "deleted_at": "now()"})
	f.insert("webhooks", 1, nil)
	for due, n := range map[string]int{"now() + interval '1 h'": 1, "now() - interval '2 h'": 2} {
		f.insert("deliveries", n, columns{"next_attempt_at": due})
	}
	f.insert("deliveries", 4, columns{"next_attempt_at": "now() - interval '4 h'", "claimed_until": "now()"})
	f.insert("deliveries", 1, columns{"state": "'DELIVERED'", "next_attempt_at": "NULL", "settled_at": "now()"})

	got := f.backlog(1000)
	require.InDelta(t, 3*time.Hour, got.OldestDue, float64(testkit.Patience))
	require.InDelta(t, 2*time.Hour, got.OldestDelivery, float64(testkit.Patience), "deliveries that are being sent do not count")
	require.Equal(t, job.Backlog{
		Jobs: map[job.State]int{job.Created: 1, job.Queued: 2, job.Assigned: 3, job.Running: 4}, OldestDue: got.OldestDue,
		Workers: 2, Slots: 14, Deliveries: 7, OldestDelivery: got.OldestDelivery, DisabledWebhooks: 5,
	}, got)
}

func TestBacklogIsBounded(t *testing.T) {
	f := setup(t)
	const rows, limit = 5000, 100
	f.insert("jobs", rows, columns{"state": "'CREATED'", "type": "'DEFERRED'", "queued_at": "NULL",
		"execution_at": "now() + interval '1 hour'", "run_at": "now() + interval '1 hour'"})
	f.insert("jobs", rows, columns{"run_at": "now() - i * interval '1 s'"})
	f.insert("jobs", rows, columns{"state": "'RUNNING'", "started_at": "now()", "worker_id": "gen_random_uuid()"})
	f.insert("deliveries", rows, columns{"url": "'u'", "next_attempt_at": "now() - i * interval '1 s'",
		"claimed_until": "CASE WHEN i % 2 = 0 THEN now() END"})
	f.insert("webhooks", rows, columns{"disabled_at": "now()", "disabled_reason": "'GONE'"})
	require.Equal(t, map[job.State]int{job.Created: rows, job.Queued: rows, job.Assigned: 0, job.Running: rows}, f.backlog(2*rows).Jobs)
	c := f.backlog(limit)
	require.Equal(t, map[job.State]int{job.Created: limit, job.Queued: 0, job.Assigned: 0, job.Running: limit}, c.Jobs,
		"never more than there are")
	require.Equal(t, []int{limit, limit}, []int{c.Deliveries, c.DisabledWebhooks})
	require.InDelta(t, rows, c.OldestDue.Seconds(), 60, "the oldest of all jobs")
	require.InDelta(t, rows, c.OldestDelivery.Seconds(), 60, "the oldest delivery of all endpoints")

	ids := `'` + nobody + `', '` + nobody + `', 10`
	for table, most := range map[string]int{"jobs": 3*limit + 1, "deliveries": 2*limit + 10, "webhooks": limit} {
		require.LessOrEqual(t, f.reads(table, repo.Statements["readBacklog"], ids+`, 100`), 3*most+10, table)
		require.LessOrEqual(t, f.reads(table, repo.Statements["adminSituation"], `100, `+ids+`, 5`), 6*most+10, table)
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
	canceled := f.at(job.Canceled)

	messages := f.outcomes(10)
	require.Equal(t, []job.Outcome{job.OutcomeFailed, job.OutcomeSuccess, job.OutcomeCanceled},
		each(messages, func(m job.OutcomeMessage) job.Outcome { return m.Ended.Outcome }))
	first := messages[0]
	require.Equal(t, []any{l.JobID, 1, job.Failed}, []any{first.JobID, first.Attempt, first.Ended.State})
	require.Equal(t, end.Failure, first.Ended.Failure)
	require.Equal(t, f.job(l.JobID).Origin(), first.Origin)
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
	require.Equal(t, 3, f.count("outcome_outbox"), "only RemovePublished removes outcomes")
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, 2, f.count("outcome_outbox"))
	require.NoError(t, f.store.Delete(f.ctx(), f.client, canceled))
	require.Equal(t, 1, f.count("outcome_outbox"), "the outcome is removed with its job")
	f.exec(`INSERT INTO outcome_outbox VALUES (gen_random_uuid(), 1, now())`)
	require.Empty(t, f.outcomes(10))
	require.Equal(t, 1, f.count("outcome_outbox"))
}

func TestManyOutcomes(t *testing.T) {
	f := setup(t)
	const many = 6000
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 1, now(), now() - interval '1 hour' FROM generate_series(1, $1::int)`, many)
	f.exec(`INSERT INTO outcome_outbox SELECT job_id, 2, now(), CASE WHEN substring(job_id::text FROM 1 FOR 1) > '7' THEN now() END
		FROM outcome_outbox`)
	waiting := f.count(`outcome_outbox WHERE published_at IS NULL`)
	unlock := f.lock(`SELECT FROM outcome_outbox WHERE published_at < now() - interval '1 minute' ORDER BY job_id LIMIT 1 FOR UPDATE`)
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, many+1, f.count("outcome_outbox"), "locked rows are left for later")
	unlock()
	require.NoError(t, f.store.RemovePublished(f.ctx(), time.Minute))
	require.Equal(t, many, f.count("outcome_outbox"))
	f.exec(`UPDATE outcome_outbox SET published_at = now() WHERE published_at IS NULL AND attempt = 2`)
	require.Equal(t, many, must(f.store.RepublishOutcomes(f.ctx()))(t))
	require.NotZero(t, waiting)
	require.Zero(t, f.count(`outcome_outbox WHERE published_at IS NOT NULL`))
}

func TestRepublishWaits(t *testing.T) {
	f := setup(t)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 1, now(), now() - interval '1 hour' FROM generate_series(1, 5000)`)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 2, now(), now()`)
	tx := f.begin()
	must(tx.Exec(f.ctx(), `DELETE FROM outcome_outbox WHERE attempt = 1`))(t)
	var n int
	done := begin(func() (err error) { n, err = f.store.RepublishOutcomes(f.ctx()); return err })
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-done)
	require.Equal(t, 1, n)
}

func TestRemovedJobsTakeTheirDeliveries(t *testing.T) {
	f := setup(t, streaming)
	hook := f.subscribe("*")
	var ids []job.ID
	for range 3 {
		l := f.run(calledBack)
		f.finish(success(l))
		ids = append(ids, l.JobID)
	}
	deleted, old, kept := ids[0], ids[1], ids[2]
	held := f.claimAll(hook, 1)[0]
	f.deliverAll()
	require.NoError(t, f.store.Delete(f.ctx(), f.client, deleted))
	f.requireStaleResult(delivered(held), "the job was deleted")
	f.age(old, month+time.Second)
	f.clean(100)
	require.Equal(t, kept.String(), one[string](f, `SELECT string_agg(DISTINCT job_id::text, ' ') FROM deliveries`))
	for table, n := range map[string]int{"deliveries": 10, "delivery_attempts": 10, "outcome_outbox": 1} {
		require.Equal(t, n, f.count(table), table)
	}

	f.testWebhook(hook)
	f.deliverAll()
	f.exec(`UPDATE client_events SET occurred_at = occurred_at - $1::interval`, month)
	f.clean(100)
	require.Zero(t, f.count("client_events"))
	require.Equal(t, 10, f.count("deliveries"))
	f.checkInvariants()
}

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
	require.Equal(t, job.CodeJobGone, codeOf(f.store.Job(f.ctx(), f.client, id)))
	require.NotZero(t, f.job(kept))
	f.checkInvariants()
}

// A delivery without its event is not sent, and is removed.
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
