package repo_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEmitWhileItRuns(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	first := job.Emission{Name: "order.paid", Data: json.RawMessage(`{"order": 4711}`)}
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first))
	once := f.all(l.JobID)
	require.NoError(t, f.store.Emit(f.ctx(), l, 0, first), "its answer was lost")
	require.Equal(t, once, f.all(l.JobID), "it is there already")
	require.NoError(t, f.store.Emit(f.ctx(), l, 1, job.Emission{Name: "order.sent"}))

	log := f.log(l.JobID)
	require.Equal(t, []string{"job.created", "job.queued", "job.assigned", "job.running", "event.emitted", "event.emitted"}, f.names(l.JobID))
	require.Equal(t, map[string]any{"order": 4711.0}, log[4].Data["data"])
	require.Equal(t, "SUCCESS_FAST", log[4].Data["work_kind"])
	require.Equal(t, "order.sent", log[5].Data["name"])
	require.Nil(t, log[5].Data["data"])
	require.Equal(t, 6, f.job(l.JobID).EventSeq)
	f.finish(success(l))
	report, err := f.store.Report(f.ctx(), f.client, l.JobID, 1)
	require.NoError(t, err)
	require.Len(t, report.Events, 7)
}

func TestEmitIsOfTheHolderAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	e := job.Emission{Name: "late"}
	assigned, ended := f.assigned(f.submit(), 1), f.run()
	f.finish(success(ended))
	other := f.run()
	before := f.all(other.JobID)
	for name, l := range map[string]job.Lease{
		"not started": assigned, "ended": ended,
		"older fence":     {JobID: other.JobID, Attempt: other.Attempt, Fence: other.Fence - 1},
		"other attempt":   {JobID: other.JobID, Attempt: other.Attempt + 1, Fence: other.Fence},
		"job of no table": {JobID: newID(), Attempt: 1, Fence: 1},
	} {
		require.ErrorIs(t, f.store.Emit(f.ctx(), l, 0, e), job.ErrStale, name)
	}
	require.Equal(t, before, f.all(other.JobID))
}

// A change of the row that is committed after the statement began makes it look again.
func TestEmitLooksAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	tx, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx(), `UPDATE jobs SET event_seq = event_seq + 1 WHERE job_id = $1`, l.JobID.String())
	require.NoError(t, err)
	_, err = tx.Exec(f.ctx(), `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT job_id, client_id, event_seq, gen_random_uuid(), 'event.emitted', 1, now(), '{}' FROM jobs WHERE job_id = $1`, l.JobID.String())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- f.store.Emit(f.ctx(), l, 0, job.Emission{Name: "again"}) }()
	require.Eventually(t, func() bool {
		return one[int](f, `SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`) > 0
	}, patience, time.Millisecond)
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-done)
	require.Len(t, f.log(l.JobID), 5, "the event is there: it is not written again")
}

// What a request plans for failures is with the attempt, wherever it is read.
func TestPlannedFailuresAreReadWithTheJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	planned := []job.PlannedFailure{{Attempts: []int{1}, Problem: job.PlannedProblem{Title: "Out of stock",
		Extensions: json.RawMessage(`{"item": 17}`)}}}
	l := f.run(func(s *job.Submission) {
		d := job.DefineCustom(job.Execute, &job.Behavior{Failures: planned, Duration: time.Second}, time.Now(), nil)
		s.Job.WorkKind, s.Job.Definition = job.Custom, &d
	})
	f.finish(failure(l, job.CustomFailed))
	require.Equal(t, planned, f.job(l.JobID).Origin().Failures)
	report, err := f.store.Report(f.ctx(), f.client, l.JobID, 1)
	require.NoError(t, err)
	require.Equal(t, planned, report.Origin.Failures)
	origin, _, err := f.store.Attempts(f.ctx(), f.client, l.JobID)
	require.NoError(t, err)
	require.Equal(t, planned, origin.Failures)
	log, err := f.store.Events(f.ctx(), f.client, l.JobID, 0, 100)
	require.NoError(t, err)
	require.Equal(t, planned, log.Events[len(log.Events)-1].Origin.Failures)
}
