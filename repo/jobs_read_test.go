package repo_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestReadsBelongToTheClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.at(job.Succeeded)
	for _, test := range []struct{ client, id job.ID }{{newID(), id}, {job.ID{}, id}, {f.client, newID()}, {f.client, job.ID{}}} {
		_, jobErr := f.store.Job(f.ctx(), test.client, test.id)
		_, reportErr := f.store.Report(f.ctx(), test.client, test.id, 0)
		_, eventsErr := f.store.Events(f.ctx(), test.client, test.id, 0, 10)
		require.Equal(t, job.CodeJobNotFound, job.CodeOf(jobErr))
		require.Equal(t, jobErr, reportErr, "nothing tells a foreign job from one that never existed")
		require.Equal(t, jobErr, eventsErr)
	}
}

// A foreign id costs as many statements as one that never was.
func TestReadsOfForeignJobsCostTheSame(t *testing.T) {
	t.Parallel()
	f := setup(t)
	foreign, stranger := f.at(job.Succeeded), newID()
	for name, read := range map[string]func(id job.ID) error{
		"job":    func(id job.ID) error { _, err := f.store.Job(f.ctx(), stranger, id); return err },
		"report": func(id job.ID) error { _, err := f.store.Report(f.ctx(), stranger, id, 0); return err },
		"events": func(id job.ID) error { _, err := f.store.Events(f.ctx(), stranger, id, 0, 10); return err },
	} {
		statements := func(id job.ID) int64 {
			before := f.store.Pool().Stat().AcquireCount()
			require.Error(t, read(id))
			return f.store.Pool().Stat().AcquireCount() - before
		}
		require.Positive(t, statements(foreign), name)
		require.Equal(t, statements(newID()), statements(foreign), name)
	}
}

func TestReportShowsTheWholeLogUpToItsEnd(t *testing.T) {
	t.Parallel()
	f := setup(t)
	l := f.run()
	end := withRetry(failure(l, job.FailedOnce), 0)
	end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(`{"text":"\"\\ é"}`)}
	f.finish(end)
	f.claim(l.JobID, 2)

	r, err := f.store.Report(f.ctx(), f.client, l.JobID, 0)
	require.NoError(t, err)
	require.Equal(t, 1, r.Number, "attempt 2 has not ended")
	log := f.log(l.JobID)
	require.Len(t, r.Events, 6)
	for i, e := range r.Events {
		var data map[string]any
		require.NoError(t, json.Unmarshal(e.Data, &data))
		require.Empty(t, cmp.Diff(log[i], event{e.Seq, e.Name, string(e.Prev), string(e.Next), e.Attempt, e.At, data}))
		require.Equal(t, l.JobID, e.JobID)
		require.Equal(t, one[string](f, `SELECT event_id::text FROM events WHERE job_id = $1 AND seq = $2`, l.JobID.String(), e.Seq),
			e.ID.String())
		require.Equal(t, time.UTC, e.At.Location())
	}

	f.finish(success(job.Lease{JobID: l.JobID, Attempt: 2, Fence: 2}))
	latest, err := f.store.Report(f.ctx(), f.client, l.JobID, 0)
	require.NoError(t, err)
	require.Equal(t, 2, latest.Number)
	require.Len(t, latest.Events, len(f.log(l.JobID)))
	first, err := f.store.Report(f.ctx(), f.client, l.JobID, 1)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(r, first), "a report never changes")
}

func TestReportThatDoesNotExistYet(t *testing.T) {
	t.Parallel()
	f := setup(t)
	running, ended := f.at(job.Running), f.at(job.Failed)
	second := f.claim(f.submit(), 1)
	f.finish(withRetry(failure(second, job.FailedOnce), 0))
	for _, test := range []struct {
		id      job.ID
		attempt int
		code    job.Code
		detail  string
	}{
		{running, 0, job.CodeJobNotFinished, "The job is RUNNING: attempt 1 has not ended"},
		{running, 1, job.CodeJobNotFinished, "The job is RUNNING: attempt 1 has not ended"},
		{running, 2, job.CodeJobNotFound, "no attempt 2; its latest one is attempt 1"},
		{second.JobID, 2, job.CodeJobNotFinished, "The job is QUEUED: attempt 2 has not ended"},
		{ended, 2, job.CodeJobNotFound, "no attempt 2"},
		{ended, -1, job.CodeJobNotFound, "no such report"},
	} {
		_, err := f.store.Report(f.ctx(), f.client, test.id, test.attempt)
		require.Equal(t, test.code, job.CodeOf(err), test.attempt)
		require.ErrorContains(t, err, test.detail)
	}
	f.exec(`DELETE FROM reports WHERE job_id = $1`, ended.String())
	_, err := f.store.Report(f.ctx(), f.client, ended, 1)
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(err), "it ended, so that there is nothing to wait for")
}

func TestTimesAreUTC(t *testing.T) {
	t.Parallel()
	f := setup(t)
	j := f.job(f.at(job.Failed))
	for _, at := range []time.Time{j.CreatedAt, j.UpdatedAt, j.RunAt, *j.StartedAt, *j.FinishedAt} {
		require.Equal(t, time.UTC, at.Location())
	}
}

func TestDamagedDefinitionCanBeLookedAt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	f.exec(`UPDATE jobs SET definition = '"x"' WHERE job_id = $1`, id.String())
	require.Nil(t, f.job(id).Definition)
	_, before, err := f.store.Cancel(f.ctx(), f.client, id)
	require.NoError(t, err)
	require.Nil(t, before.Definition)
}
