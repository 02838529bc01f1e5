package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func streaming(c *repo.Config) { c.OutcomeStream = true }

func (f *fixture) outcomes(limit int) []job.OutcomeMessage {
	f.t.Helper()
	messages, err := f.store.UnpublishedOutcomes(f.ctx(), limit)
	require.NoError(f.t, err)
	return messages
}

func TestOutcomesWaitForTheStream(t *testing.T) {
	t.Parallel()
	f := setup(t, streaming)
	l := f.run()
	end := withRetry(failure(l, job.FailedOnce), 0)
	f.finish(end)
	f.finish(success(f.claim(l.JobID, 2)))
	canceled := f.submit()
	_, _, err := f.store.Cancel(f.ctx(), f.client, canceled)
	require.NoError(t, err)

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
	n, err := f.store.RepublishOutcomes(f.ctx())
	require.NoError(t, err)
	require.Equal(t, 2, n)
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
	t.Parallel()
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
	n, err := f.store.RepublishOutcomes(f.ctx())
	require.NoError(t, err)
	require.Equal(t, many, n)
	require.NotZero(t, waiting)
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM outcome_outbox WHERE published_at IS NOT NULL`))
}

// Outcomes that are just being removed are waited for, and do not end the search.
func TestRepublishWaits(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 1, now(), now() - interval '1 hour' FROM generate_series(1, 5000)`)
	f.exec(`INSERT INTO outcome_outbox SELECT gen_random_uuid(), 2, now(), now()`)
	tx, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx(), `DELETE FROM outcome_outbox WHERE attempt = 1`)
	require.NoError(t, err)
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

func TestNoStreamNoOutbox(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.at(job.Succeeded)
	require.Zero(t, f.count("outcome_outbox"))
}

// What belongs to a job goes with it, its deliveries included.
func TestRemovedJobsTakeTheirDeliveries(t *testing.T) {
	t.Parallel()
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

	_, err = f.store.TestWebhook(f.ctx(), f.client, hook)
	require.NoError(t, err)
	f.deliverAll()
	f.exec(`UPDATE client_events SET occurred_at = occurred_at - $1::interval`, month)
	f.clean(100)
	require.Zero(t, f.count("client_events"))
	require.Equal(t, 10, f.count("deliveries"))
	f.checkInvariants()
}

// A job with many deliveries is removed bit by bit.
func TestCleanRemovesManyDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range 9 {
		f.subscribe("*")
	}
	id, kept := f.at(job.Succeeded), f.at(job.Succeeded)
	f.deliverAll()
	f.age(id, month+time.Second)
	more, err := f.store.Clean(f.ctx(), 1)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, 45+25, f.count("deliveries"))
	require.NotZero(t, f.job(id))
	f.clean(1)
	require.Equal(t, 45, f.count("deliveries"))
	_, err = f.store.Job(f.ctx(), f.client, id)
	require.Equal(t, job.CodeJobGone, job.CodeOf(err))
	require.NotZero(t, f.job(kept))
	f.checkInvariants()
}

// A delivery whose event is gone all the same is not sent, and not kept.
func TestDeliveryWithoutItsEvent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe("*")
	f.submit()
	f.exec(`UPDATE deliveries SET seq = 77 WHERE seq = 1`)
	p := f.claimAll(hook, 10)
	require.Len(t, p, 1)
	require.Equal(t, 2, p[0].Seq)
	require.Equal(t, 1, f.count("deliveries"))
}
