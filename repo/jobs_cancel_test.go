package repo_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// at brings a new job to a state by the store's own steps.
func (f *fixture) at(s job.State) job.ID {
	f.t.Helper()
	switch s {
	case job.Created:
		return f.submit(deferred(time.Hour))
	case job.Queued:
		return f.submit()
	case job.Assigned:
		return f.assigned(f.submit(), 1).JobID
	case job.Running:
		return f.run().JobID
	case job.Succeeded:
		l := f.run()
		f.finish(success(l))
		return l.JobID
	case job.Failed:
		l := f.run()
		f.finish(failure(l, job.FailedOnce))
		return l.JobID
	default:
		id := f.submit()
		_, _, err := f.store.Cancel(f.ctx(), f.client, id)
		require.NoError(f.t, err)
		return id
	}
}

func TestCancelFromEachState(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, from := range []job.State{job.Created, job.Queued, job.Assigned, job.Running} {
		id, batch := f.at(from), newID()
		f.exec(`UPDATE jobs SET batch_id = $2, correlation_id = 'c-1' WHERE job_id = $1`, id.String(), batch.String())
		started := f.job(id).StartedAt
		change, before, err := f.store.Cancel(f.ctx(), f.client, id)
		require.NoError(t, err)

		j := f.job(id)
		require.Equal(t, job.Change{JobID: id, State: job.Canceled, Attempt: 1, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt, Changed: true}, change,
			from)
		require.Equal(t, &job.Job{
			ID: id, ClientID: f.client, State: from, WorkKind: job.SuccessFast, RequestID: "r-1", Definition: f.submission().Job.Definition,
			BatchID: batch, CorrelationID: "c-1", StartedAt: started,
		}, before, "what it was")
		require.Equal(t, job.Canceled, j.State)
		require.Equal(t, job.OutcomeCanceled, j.Outcome)
		require.Equal(t, started, j.StartedAt)
		require.True(t, one[bool](f, `SELECT worker_id IS NULL FROM jobs WHERE job_id = $1`, id.String()))

		log := f.log(id)
		last := log[len(log)-1]
		require.Equal(t, []string{job.EventCanceled, string(from), "CANCELED"}, []string{last.Name, last.Prev, last.Next})
		require.Equal(t, j.EventSeq, last.Seq)

		r, err := f.store.Report(f.ctx(), f.client, id, 0)
		require.NoError(t, err)
		require.Equal(t, job.Attempt{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, StartedAt: started,
			FinishedAt: j.FinishedAt}, r.Attempt)
		require.Len(t, r.Events, len(log))
		if started == nil {
			require.Zero(t, r.Duration)
		} else {
			require.InDelta(t, j.FinishedAt.Sub(*started).Seconds(), r.Duration.Seconds(), 0.0006)
		}
	}
}

func TestCancelOfARunningJobReportsItsDuration(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	f.exec(`UPDATE jobs SET started_at = started_at - interval '1500 ms' WHERE job_id = $1`, l.JobID.String())
	_, _, err := f.store.Cancel(f.ctx(), f.client, l.JobID)
	require.NoError(t, err)
	r, err := f.store.Report(f.ctx(), f.client, l.JobID, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, r.Duration, 1500*time.Millisecond)
}

func TestCancelOfAFinalJobChangesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for _, from := range []job.State{job.Succeeded, job.Failed, job.Canceled} {
		id := f.at(from)
		all, j := f.all(id), f.job(id)
		change, before, err := f.store.Cancel(f.ctx(), f.client, id)
		require.NoError(t, err)
		require.Nil(t, before)
		require.Equal(t, job.Change{JobID: id, State: from, Attempt: 1, UpdatedAt: j.UpdatedAt, RunAt: j.RunAt}, change)
		require.Equal(t, all, f.all(id))
	}
}

func TestCancelOfWhatIsNotTheClients(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	all := f.all(id)
	for _, test := range []struct{ client, id job.ID }{{newID(), id}, {job.ID{}, id}, {f.client, newID()}} {
		_, before, err := f.store.Cancel(f.ctx(), test.client, test.id)
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(err))
		require.Nil(t, before)
	}
	require.Equal(t, all, f.all(id))
}

func TestConcurrentCancelsHaveOneEvent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.run().JobID
	var mu sync.Mutex
	changed := 0
	inParallel(20, func(int) {
		c, before, err := f.store.Cancel(f.ctx(), f.client, id)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && c.State == job.Canceled && c.Changed == (before != nil) {
			if c.Changed {
				changed++
			}
			return
		}
		t.Errorf("%+v %+v %v", c, before, err)
	})
	require.Equal(t, 1, changed)
	require.Len(t, f.log(id), 5)
}

func TestCancelsOfOneFlush(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	mine, final, foreign := f.run().JobID, f.at(job.Succeeded), f.submit(func(s *job.Submission) { s.Job.ClientID = newID() })
	release := f.occupy(func() { _, _, _ = f.store.Cancel(f.ctx(), f.client, newID()) })
	ids := []job.ID{foreign, mine, final}
	changes, errs := make([]job.Change, len(ids)), make([]error, len(ids))
	done := make(chan struct{})
	go func() {
		defer close(done)
		inParallel(len(ids), func(i int) { changes[i], _, errs[i] = f.store.Cancel(f.ctx(), f.client, ids[i]) })
	}()
	f.awaitQueued("cancel", len(ids))
	release()
	<-done
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(errs[0]))
	require.True(t, errs[1] == nil && changes[1].Changed && changes[1].JobID == mine)
	require.True(t, errs[2] == nil && !changes[2].Changed && changes[2].State == job.Succeeded)
}
