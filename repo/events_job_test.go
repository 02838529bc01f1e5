package repo_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// events reads a part of a job's log.
func (f *fixture) events(id job.ID, after, limit int) job.Log {
	f.t.Helper()
	log, err := f.store.Events(f.ctx(), f.client, id, after, limit)
	require.NoError(f.t, err)
	return log
}

// requireSame compares events of the API with rows of the log.
func (f *fixture) requireSame(rows []event, got []job.Occurrence) {
	f.t.Helper()
	require.Len(f.t, got, len(rows))
	for i, o := range got {
		require.Empty(f.t, cmp.Diff(rows[i], eventOf(f.t, o.Event)))
		require.Equal(f.t, one[string](f, `SELECT event_id::text FROM events WHERE job_id = $1 AND seq = $2`, o.JobID.String(), o.Seq),
			o.ID.String())
	}
}

func TestEventsTellEveryAttemptsOwnEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run(attempts(2))
	f.exec(`UPDATE jobs SET correlation_id = 'c-1', language = 'de' WHERE job_id = $1`, l.JobID.String())
	f.finish(withRetry(failure(l, job.FailedOnce), 0))
	l = f.claim(l.JobID, 2)
	end := failure(l, job.TimedOut)
	end.Exhausted = true
	f.finish(end)

	log := f.events(l.JobID, 0, 100)
	f.requireSame(f.log(l.JobID), log.Events)
	var ended []job.Attempt
	for _, e := range log.Events {
		require.Equal(t, f.job(l.JobID).Origin(), e.Origin)
		require.Equal(t, e.Next.Final(), e.Ended != nil, "%s", e.Name)
		require.Nil(t, e.Batch)
		if e.Ended != nil {
			ended = append(ended, *e.Ended)
		}
	}
	var want []job.Attempt
	for n := 1; n <= 2; n++ {
		r, err := f.store.Report(f.ctx(), f.client, l.JobID, n)
		require.NoError(t, err)
		require.Equal(t, f.job(l.JobID).Origin(), r.Origin)
		want = append(want, r.Attempt)
	}
	require.Equal(t, want, ended)
	require.Equal(t, job.FailedOnce, ended[0].Failure.Reason, "not that of the attempt after it")
	require.True(t, log.Ended)
	require.Equal(t, job.EventRetriesExhausted, log.Events[log.Last-1].Name)
}

func TestEventsInPages(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Succeeded) // created, queued, assigned, running, succeeded
	all := f.events(id, 0, 100)
	require.Len(t, all.Events, 5)
	for _, test := range []struct {
		after, limit int
		first, n     int
		ended        bool
	}{
		{0, 2, 1, 2, false}, {2, 2, 3, 2, false}, {4, 2, 5, 1, true}, {3, 2, 4, 2, true}, {3, 1, 4, 1, false},
		{5, 2, 0, 0, true}, {-7, 1, 1, 1, false},
	} {
		log := f.events(id, test.after, test.limit)
		require.Equal(t, 5, log.Last)
		require.Equal(t, test.ended, log.Ended, "%+v", test)
		require.Len(t, log.Events, test.n, "%+v", test)
		if test.n > 0 {
			require.Equal(t, all.Events[test.first-1:test.first-1+test.n], log.Events)
		}
	}
}

func TestEventsEndOnlyWithAFinalJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Failed)
	require.True(t, f.events(id, 0, 100).Ended)
	_, err := f.store.Retry(f.ctx(), f.client, id, 1, 0, "")
	require.NoError(t, err)
	log := f.events(id, 5, 100)
	require.False(t, log.Ended)
	require.Equal(t, []string{job.EventRetried}, occurred(log.Events))
	log = f.events(id, 0, 5)
	require.Equal(t, job.Failed, log.Events[4].Ended.State, "it stays known")

	waiting := f.submit()
	log = f.events(waiting, 2, 100)
	require.Empty(t, log.Events)
	require.Equal(t, 2, log.Last)
	require.False(t, log.Ended)
}

func occurred(events []job.Occurrence) []string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Name
	}
	return names
}

func TestEventsOfACanceledJobThatNeverRan(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Canceled)
	log := f.events(id, 2, 1)
	require.True(t, log.Ended)
	require.Equal(t, &job.Attempt{Number: 1, State: job.Canceled, Outcome: job.OutcomeCanceled, FinishedAt: &log.Events[0].At},
		log.Events[0].Ended)
	require.Equal(t, time.UTC, log.Events[0].At.Location())
}

func TestEventSeqs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	waiting, ended, gone := f.submit(), f.at(job.Succeeded), f.at(job.Failed)
	f.age(gone, 2*month)
	f.clean(10)
	seqs, err := f.store.EventSeqs(f.ctx(), []job.ID{ended, newID(), gone, waiting})
	require.NoError(t, err)
	require.Equal(t, map[job.ID]int{waiting: 2, ended: 5}, seqs)
	seqs, err = f.store.EventSeqs(f.ctx(), nil)
	require.NoError(t, err)
	require.Empty(t, seqs)
}
