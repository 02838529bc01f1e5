package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (f *fixture) completeBatches(ids ...job.ID) []job.Batch {
	if len(ids) == 0 {
		ids, _ = f.readyBatches(job.ID{}, 1000)
	}
	return must(f.store.CompleteBatches(f.ctx(), ids))(f.t)
}

func (f *fixture) readyBatches(after job.ID, look int) (ready []job.ID, last job.ID) {
	ready, last = must2(f.store.ReadyBatches(f.ctx(), after, look))(f.t)
	return ready, last
}

func (f *fixture) end(id job.ID, s job.State, reason job.Reason) {
	switch s {
	case job.Canceled:
		f.cancel(id)
	case job.Succeeded:
		f.finish(success(f.claim(id, 1)))
	default:
		f.finish(failure(f.claim(id, 1), reason))
	}
}

func (f *fixture) completedEvents(id job.ID) []string {
	return one[[]string](f, `SELECT coalesce(array_agg(data::text), '{}') FROM client_events
		WHERE batch_id = $1 AND client_id = $2 AND event_name = 'batch.completed'`, id.String(), f.client.String())
}

func TestCompletionCountsEachEnd(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(6, refusing(1)))
	open := f.insertBatch(f.batch(1))
	ids := jobsOf(b)
	f.end(ids[0], job.Succeeded, "")
	f.end(ids[1], job.Failed, job.TimedOut)
	f.end(ids[2], job.Canceled, "")
	f.end(ids[3], job.Succeeded, "")
	f.end(ids[4], job.Failed, job.FailedImmediately)
	require.Empty(t, f.completeBatches(), "one job is unfinished")
	for _, none := range [][]job.ID{nil, {}} { // an empty list does not mean all batches
		require.Empty(t, must(f.store.CompleteBatches(f.ctx(), none))(t))
	}
	require.Empty(t, f.completeBatches(b.ID))
	require.Nil(t, f.readBatch(b.ID).Outcome)
	f.end(ids[5], job.Succeeded, "")

	completed := f.completeBatches()
	require.Len(t, completed, 1)
	got := f.readBatch(b.ID).Outcome
	timedOut, failed := job.NewFailure(job.TimedOut, 1, backoff), job.NewFailure(job.FailedImmediately, 1, backoff)
	require.Equal(t, &job.BatchOutcome{
		Status: job.StatusCompletedWithErrors, CompletedAt: got.CompletedAt, Succeeded: 3, Failed: 3, Canceled: 1,
		Failures: []job.ItemFailure{
			{ItemID: "refused-0", Status: job.StatusFailed, Detail: "The request has invalid values.", Stage: job.StageValidation},
			{ItemID: "item-1", JobID: ids[1], Status: job.StatusTimedOut, Reason: job.TimedOut, Detail: timedOut.Detail, Retryable: true,
				Stage: timedOut.Stage},
			{ItemID: "item-4", JobID: ids[4], Status: job.StatusFailed, Reason: job.FailedImmediately, Detail: failed.Detail, Stage: failed.Stage},
		},
	}, got)
	require.Equal(t, job.Batch{ID: b.ID, ClientID: f.client, RequestID: "r-1", CorrelationID: b.CorrelationID, Items: b.Items,
		Outcome: got}, completed[0])
	require.False(t, got.CompletedAt.Before(*f.job(ids[5]).FinishedAt))
	require.Equal(t, got.CompletedAt, one[time.Time](f, `SELECT occurred_at FROM client_events`))
	require.JSONEq(t, `{"status": "COMPLETED_WITH_ERRORS", "total": 7, "succeeded": 3, "failed": 3, "canceled": 1}`,
		f.completedEvents(b.ID)[0])
	require.True(t, one[bool](f, `SELECT (SELECT tx FROM client_events) > max(tx) FROM events`),
		"the event follows the ends of the jobs")
	require.Empty(t, f.completedEvents(open.ID))
}

// Promise: draft 7.1
func TestCompletionListsTheFirstFailures(t *testing.T) {
	f := setup(t)
	const n = job.MaxFailedItems + 10
	b := f.insertBatch(f.batch(n))
	f.exec(`UPDATE jobs SET state = 'FAILED', outcome = 'FAILED', started_at = now(), finished_at = now(),
		failure_code = 'RFA_INTERNAL', failure_reason = 'work-panicked', failure_detail = 'd', failure_stage = 'processing'`)
	outcome := f.completeBatches(b.ID)[0].Outcome
	require.Equal(t, n, outcome.Failed)
	require.Equal(t, job.StatusFailed, outcome.Status)
	require.Len(t, outcome.Failures, job.MaxFailedItems)
	for i, failed := range outcome.Failures {
		require.Equal(t, b.Items[i].ItemID, failed.ItemID)
		require.Equal(t, b.Items[i].JobID, failed.JobID)
	}
}

func TestReadyBatchesAreFoundSliceBySlice(t *testing.T) {
	f := setup(t)
	var all, refused []job.ID
	for i := range 7 {
		b := f.insertBatch(f.batch(i%2, refusing(1)))
		all = append(all, b.ID)
		if i%2 == 0 {
			refused = append(refused, b.ID)
		}
	}
	var places []job.ID
	found, _ := walk(f, func(after job.ID) (ready []job.ID, last job.ID) {
		ready, last = f.readyBatches(after, 2)
		places = append(places, last)
		return ready, last
	})
	require.Equal(t, []job.ID{all[1], all[3], all[5], {}}, places)
	require.Equal(t, refused, found)
	require.Len(t, f.completeBatches(refused...), len(refused))
	for _, step := range [][]job.ID{{{}, all[5]}, {all[5], {}}} {
		ready, last := f.readyBatches(step[0], 3)
		require.Empty(t, ready)
		require.Equal(t, step[1], last)
	}
}

func TestCompletionReadsBeforeItLocks(t *testing.T) {
	f := setup(t)
	open, ready := f.insertBatch(f.batch(1)), f.insertBatch(f.batch(0, refusing(1)))
	unlock := f.lock(`LOCK TABLE batches IN EXCLUSIVE MODE`)
	require.Empty(t, f.completeBatches(open.ID))
	found, _ := f.readyBatches(job.ID{}, 10)
	require.Equal(t, []job.ID{ready.ID}, found)
	requireTrouble(t, errOf(f.store.CompleteBatches(f.ctx(), []job.ID{ready.ID})), job.CodeDBError)
	unlock()
	require.Len(t, f.completeBatches(open.ID, ready.ID), 1)
}

// Promise: draft 4.2
func TestCompletedBatchNeverChanges(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(2))
	ids := jobsOf(b)
	f.end(ids[0], job.Failed, job.FailedOnce)
	f.end(ids[1], job.Succeeded, "")
	require.Len(t, f.completeBatches(), 1)
	completed := f.readBatch(b.ID)

	f.retry(ids[0], 1)
	f.finish(success(f.claim(ids[0], 2)))
	require.NoError(t, f.store.Delete(f.ctx(), f.client, ids[1]))
	require.Empty(t, f.completeBatches())
	require.Empty(t, f.completeBatches(b.ID))
	require.Equal(t, completed.Outcome, f.readBatch(b.ID).Outcome)
	require.Len(t, f.completedEvents(b.ID), 1)
}

func TestJobsOfAnOpenBatchAreKept(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(2))
	ids := jobsOf(b)
	f.end(ids[0], job.Failed, job.FailedOnce)
	err := f.store.Delete(f.ctx(), f.client, ids[0])
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
	require.ErrorContains(t, err, "belongs to a batch that is not complete")
	f.exec(`UPDATE jobs SET finished_at = finished_at - interval '10 years' WHERE job_id = $1`, ids[0].String())
	must(f.store.Clean(f.ctx(), 100))(t)
	require.Empty(t, f.completeBatches())
	f.end(ids[1], job.Canceled, "")
	outcome := f.completeBatches(b.ID)[0].Outcome
	require.Equal(t, 1, outcome.Failed, "the job was neither deleted nor cleaned")
	require.Equal(t, 1, outcome.Canceled)
	for _, id := range ids {
		require.NoError(t, f.store.Delete(f.ctx(), f.client, id), "jobs of a completed batch can be deleted")
	}
	require.Equal(t, outcome, f.readBatch(b.ID).Outcome)
}
