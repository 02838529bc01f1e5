package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// completeBatches settles what can be completed of the given batches, or of all
// there are.
func (f *fixture) completeBatches(ids ...job.ID) []job.Batch {
	f.t.Helper()
	if len(ids) == 0 {
		ids, _ = f.readyBatches(job.ID{}, 1000)
	}
	completed, err := f.store.CompleteBatches(f.ctx(), ids)
	require.NoError(f.t, err)
	return completed
}

func (f *fixture) readyBatches(after job.ID, look int) (ready []job.ID, last job.ID) {
	f.t.Helper()
	ready, last, err := f.store.ReadyBatches(f.ctx(), after, look)
	require.NoError(f.t, err)
	return ready, last
}

// end brings a job that is QUEUED to a final state.
func (f *fixture) end(id job.ID, s job.State, reason job.Reason) {
	f.t.Helper()
	switch s {
	case job.Canceled:
		_, _, err := f.store.Cancel(f.ctx(), f.client, id)
		require.NoError(f.t, err)
	case job.Succeeded:
		f.finish(success(f.claim(id, 1)))
	default:
		f.finish(failure(f.claim(id, 1), reason))
	}
}

// told gives the data of the batch.completed events of a batch.
func (f *fixture) told(id job.ID) []string {
	f.t.Helper()
	return one[[]string](f, `SELECT coalesce(array_agg(data::text), '{}') FROM client_events
		WHERE batch_id = $1 AND client_id = $2 AND event_name = 'batch.completed'`, id.String(), f.client.String())
}

func TestSettleCountsEachEnd(t *testing.T) {
	t.Parallel()
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
	require.Empty(t, f.completeBatches(b.ID))
	require.Nil(t, f.readBatch(b.ID).Outcome)
	f.end(ids[5], job.Succeeded, "")

	completed := f.completeBatches()
	require.Len(t, completed, 1)
	got := f.readBatch(b.ID)
	timedOut, failed := job.NewFailure(job.TimedOut, 1, backoff), job.NewFailure(job.FailedImmediately, 1, backoff)
	require.Equal(t, &job.BatchOutcome{
		Status: job.StatusCompletedWithErrors, CompletedAt: got.Outcome.CompletedAt, Succeeded: 3, Failed: 3, Canceled: 1,
		Failures: []job.ItemFailure{
			{ItemID: "refused-0", Status: job.StatusFailed, Detail: "The request has invalid values.", Stage: job.StageValidation},
			{ItemID: "item-1", JobID: ids[1], Status: job.StatusTimedOut, Reason: job.TimedOut, Detail: timedOut.Detail, Retryable: true,
				Stage: timedOut.Stage},
			{ItemID: "item-4", JobID: ids[4], Status: job.StatusFailed, Reason: job.FailedImmediately, Detail: failed.Detail, Stage: failed.Stage},
		},
	}, got.Outcome)
	require.Equal(t, job.Batch{ID: b.ID, ClientID: f.client, RequestID: "r-1", CorrelationID: b.CorrelationID, Items: b.Items,
		Outcome: got.Outcome}, completed[0])
	require.False(t, got.Outcome.CompletedAt.Before(*f.job(ids[5]).FinishedAt))
	require.Equal(t, got.Outcome.CompletedAt, one[time.Time](f, `SELECT occurred_at FROM client_events`))
	require.JSONEq(t, `{"status": "COMPLETED_WITH_ERRORS", "total": 7, "succeeded": 3, "failed": 3, "canceled": 1}`, f.told(b.ID)[0])
	require.True(t, one[bool](f, `SELECT (SELECT tx FROM client_events) > max(tx) FROM events`),
		"a client hears of it after the ends of its jobs")
	require.Empty(t, f.told(open.ID))
}

// Every mix of three ends: the status is that of package job.
func TestSettleStatus(t *testing.T) {
	t.Parallel()
	f := setup(t)
	states := []job.State{job.Succeeded, job.Failed, job.Canceled, "refused"}
	want := map[job.ID]job.Status{}
	for mix := range 4 * 4 * 4 {
		counts := map[job.State]int{}
		for _, digit := range []int{mix % 4, mix / 4 % 4, mix / 16} {
			counts[states[digit]]++
		}
		b := f.insertBatch(f.batch(3-counts["refused"], refusing(counts["refused"])))
		ids := jobsOf(b)
		for _, s := range states[:3] {
			for range counts[s] {
				f.exec(`UPDATE jobs SET state = $2, outcome = $3, started_at = now(), finished_at = now(), failure_code = $4 WHERE job_id = $1`,
					ids[0].String(), string(s), string(job.OutcomeOf(s)), map[bool]any{true: "RFA_INTERNAL"}[s == job.Failed])
				ids = ids[1:]
			}
		}
		want[b.ID] = job.BatchStatus(counts[job.Succeeded], counts[job.Failed]+counts["refused"], counts[job.Canceled])
	}
	completed := f.completeBatches()
	require.Len(t, completed, len(want))
	for _, b := range completed {
		require.Equal(t, want[b.ID], b.Outcome.Status)
		require.Equal(t, b.Outcome, f.readBatch(b.ID).Outcome)
	}
}

func TestSettleListsTheFirstFailures(t *testing.T) {
	t.Parallel()
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

func TestSettleOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(0, refusing(2)))
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	completed := make([]int, 10)
	inParallel(len(completed), func(i int) {
		got, err := stores[i%2].CompleteBatches(f.ctx(), []job.ID{b.ID})
		if err != nil {
			t.Error(err)
		}
		completed[i] = len(got)
	})
	sum := 0
	for _, n := range completed {
		sum += n
	}
	require.Equal(t, 1, sum)
	require.Len(t, f.told(b.ID), 1)
	require.Equal(t, job.StatusFailed, f.readBatch(b.ID).Status())
}

func TestReadyBatchesAreFoundSliceBySlice(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var all, refused []job.ID
	for i := range 7 {
		b := f.insertBatch(f.batch(i%2, refusing(1)))
		all = append(all, b.ID)
		if i%2 == 0 {
			refused = append(refused, b.ID)
		}
	}
	var found []job.ID
	var last job.ID
	for _, want := range []job.ID{all[1], all[3], all[5], {}} {
		var ready []job.ID
		ready, last = f.readyBatches(last, 2)
		require.Equal(t, want, last)
		found = append(found, ready...)
	}
	require.Equal(t, refused, found)
	require.Len(t, f.completeBatches(refused...), len(refused))
	ready, last := f.readyBatches(job.ID{}, 3)
	require.Empty(t, ready)
	require.Equal(t, all[5], last, "completed ones are not looked at")
	ready, last = f.readyBatches(last, 3)
	require.Empty(t, ready)
	require.Zero(t, last)
}

func TestNoBatchesAreNotAll(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(0, refusing(1)))
	for _, none := range [][]job.ID{nil, {}} {
		completed, err := f.store.CompleteBatches(f.ctx(), none)
		require.NoError(t, err)
		require.Empty(t, completed)
	}
	require.Nil(t, f.readBatch(b.ID).Outcome)
}

// Looking in vain takes no lock that a completion takes.
func TestSettleLooksBeforeItLocks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	open, ready := f.insertBatch(f.batch(1)), f.insertBatch(f.batch(0, refusing(1)))
	unlock := f.lock(`LOCK TABLE batches IN EXCLUSIVE MODE`)
	require.Empty(t, f.completeBatches(open.ID))
	found, _ := f.readyBatches(job.ID{}, 10)
	require.Equal(t, []job.ID{ready.ID}, found)
	_, err := f.store.CompleteBatches(f.ctx(), []job.ID{ready.ID})
	requireTrouble(t, err, job.CodeDBError)
	unlock()
	require.Len(t, f.completeBatches(open.ID, ready.ID), 1)
}

func TestSettledBatchStaysAsItIs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(2))
	ids := jobsOf(b)
	f.end(ids[0], job.Failed, job.FailedOnce)
	f.end(ids[1], job.Succeeded, "")
	require.Len(t, f.completeBatches(), 1)
	completed := f.readBatch(b.ID)

	_, err := f.store.Retry(f.ctx(), f.client, ids[0], 1, 0, "")
	require.NoError(t, err)
	f.finish(success(f.claim(ids[0], 2)))
	require.NoError(t, f.store.Delete(f.ctx(), f.client, ids[1]))
	require.Empty(t, f.completeBatches())
	require.Empty(t, f.completeBatches(b.ID))
	require.Equal(t, completed.Outcome, f.readBatch(b.ID).Outcome)
	require.Len(t, f.told(b.ID), 1)
}

func TestSettleCountsJobsThatSomebodyWantsToDelete(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(2))
	ids := jobsOf(b)
	f.end(ids[0], job.Failed, job.FailedOnce)
	err := f.store.Delete(f.ctx(), f.client, ids[0])
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
	require.ErrorContains(t, err, "belongs to a batch that is not complete")
	f.exec(`UPDATE jobs SET finished_at = finished_at - interval '10 years' WHERE job_id = $1`, ids[0].String())
	_, err = f.store.Clean(f.ctx(), 100)
	require.NoError(t, err)
	require.Empty(t, f.completeBatches())
	f.end(ids[1], job.Canceled, "")
	outcome := f.completeBatches(b.ID)[0].Outcome
	require.Equal(t, 1, outcome.Failed, "it was neither deleted nor cleaned away")
	require.Equal(t, 1, outcome.Canceled)
	for _, id := range ids {
		require.NoError(t, f.store.Delete(f.ctx(), f.client, id), "now it counts no more")
	}
	require.Equal(t, outcome, f.readBatch(b.ID).Outcome)
}

// Whoever ends the last job tries to complete its batch; others finish, cancel, retry and
// complete at the same time. Each batch is completed once, with an outcome that
// counts each of its jobs.
func TestSettleAgainstEverything(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	const batches, size = 12, 5
	var all []*job.Batch
	for range batches {
		all = append(all, f.insertBatch(f.batch(size)))
	}
	note := func(err error) {
		if err != nil && !errors.Is(err, job.ErrStale) {
			t.Error(err)
		}
	}
	inParallel(8, func(i int) {
		ctx, s, r := context.Background(), stores[i%2], rand.New(rand.NewPCG(1, uint64(i)))
		for range batches * size * 2 {
			b := all[r.IntN(batches)]
			id := jobsOf(b)[r.IntN(size)]
			switch r.IntN(4) {
			case 0:
				_, _, err := s.Cancel(ctx, f.client, id)
				note(err)
			case 1:
				_, err := s.Retry(ctx, f.client, id, 1, 0, "")
				note(err)
			default:
				c, _, err := s.Claim(ctx, f.worker, id, 1+r.IntN(2))
				note(err)
				if c == nil {
					continue
				}
				_, err = s.Start(ctx, c.Lease)
				note(err)
				_, err = s.Finish(ctx, failure(c.Lease, job.FailedOnce))
				note(err)
			}
			_, err := s.CompleteBatches(ctx, []job.ID{b.ID})
			note(err)
		}
	})
	for _, b := range all {
		open, err := f.store.OpenJobs(f.ctx(), f.client, b.ID)
		require.NoError(t, err)
		for _, id := range open {
			_, _, err := f.store.Cancel(f.ctx(), f.client, id)
			require.NoError(t, err)
		}
	}
	f.completeBatches()
	for _, b := range all {
		outcome := f.readBatch(b.ID).Outcome
		require.Equal(t, size, outcome.Failed+outcome.Canceled)
		var told struct{ Failed, Canceled, Total int }
		require.Len(t, f.told(b.ID), 1)
		require.NoError(t, json.Unmarshal([]byte(f.told(b.ID)[0]), &told))
		require.Equal(t, []int{outcome.Failed, outcome.Canceled, size}, []int{told.Failed, told.Canceled, told.Total})
	}
	f.checkInvariants()
}
