package repo_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestReportThatDoesNotExistYet(t *testing.T) {
	f := setup(t)
	running, ended, second := f.at(job.Running), f.at(job.Failed), f.retrying(0).JobID
	for _, test := range []struct {
		id      job.ID
		attempt int
		code    job.Code
		detail  string
	}{
		{running, 0, job.CodeJobNotFinished, "The job is RUNNING: attempt 1 has not ended"},
		{running, 1, job.CodeJobNotFinished, "The job is RUNNING: attempt 1 has not ended"},
		{running, 2, job.CodeJobNotFound, "no attempt 2; its latest one is attempt 1"},
		{second, 2, job.CodeJobNotFinished, "The job is QUEUED: attempt 2 has not ended"},
		{ended, 2, job.CodeJobNotFound, "no attempt 2"},
		{ended, -1, job.CodeJobNotFound, "no report of this attempt"},
	} {
		_, err := f.store.Report(f.ctx(), f.client, test.id, test.attempt)
		require.Equal(t, test.code, job.CodeOf(err), test.attempt)
		require.ErrorContains(t, err, test.detail)
	}
	f.exec(`DELETE FROM reports WHERE job_id = $1`, ended.String())
	require.Equal(t, job.CodeJobNotFound, codeOf(f.store.Report(f.ctx(), f.client, ended, 1)), "a removed report never comes back")
}

// Promise: patterns Retry API
func TestAttempts(t *testing.T) {
	f := setup(t)
	id := f.submit(func(s *job.Submission) { s.Job.CorrelationID, s.Job.Language = "c", "de" })
	origin := f.job(id).Origin()
	require.Equal(t, []string{"c", "de"}, []string{origin.CorrelationID, origin.Language})
	requireAttempts := func(want ...job.Attempt) {
		gotOrigin, got := must2(f.store.Attempts(f.ctx(), f.client, id))(t)
		require.Equal(t, origin, gotOrigin)
		require.Equal(t, want, got)
	}
	current := func() job.Attempt { return f.job(id).CurrentAttempt() }

	requireAttempts(current())
	l := f.claim(id, 1)
	requireAttempts(current())
	f.finish(failure(l, job.FailedOnce))
	first := current()
	require.NotNil(t, first.Failure)
	requireAttempts(first)
	f.retry(id, 1)
	requireAttempts(first, job.Attempt{Number: 2, State: job.Queued})
	f.finish(success(f.claim(id, 2)))
	requireAttempts(first, current())
	require.NoError(t, f.store.Delete(f.ctx(), f.client, id))
	require.Equal(t, job.CodeJobGone, codeOf(f.store.Attempts(f.ctx(), f.client, id)))

	id = f.at(job.Canceled) // canceled before it ran
	origin = f.job(id).Origin()
	requireAttempts(current())
	require.Nil(t, current().StartedAt)
	require.Equal(t, job.OutcomeCanceled, current().Outcome)
	log := f.events(id, 2, 1)
	require.True(t, log.Ended)
	require.Equal(t, current(), *log.Events[0].Ended)
}

func TestResult(t *testing.T) {
	f := setup(t)
	l := f.run()
	end := success(l)
	f.finish(end)
	result := func(id job.ID) (*job.StoredResult, error) { return f.store.Result(f.ctx(), f.client, id) }
	got := must(result(l.JobID))(t)
	require.Equal(t, &job.StoredResult{Result: *end.Result, ExpiresAt: f.job(l.JobID).Result.ExpiresAt}, got)
	f.exec(`UPDATE results SET body = overlay(body PLACING 'x' FROM 1)`)
	_, err := result(l.JobID)
	require.Equal(t, job.CodeInternal, job.CodeOf(err), "one byte was changed")
	require.ErrorContains(t, err, l.JobID.String())
	f.exec(`UPDATE results SET body = '', size = 0, sha256 = sha256('')`)
	require.Empty(t, must(result(l.JobID))(t).Body)
	require.Zero(t, f.count("outcome_outbox"), "the outcome stream is off")
	require.NoError(t, f.store.Delete(f.ctx(), f.client, l.JobID))
	require.Equal(t, job.CodeJobGone, codeOf(result(l.JobID)))

	for s, want := range map[job.State]job.Code{
		job.Created: job.CodeJobNotFinished, job.Queued: job.CodeJobNotFinished, job.Running: job.CodeJobNotFinished,
		job.Failed: job.CodeResultNotFound, job.Canceled: job.CodeResultNotFound,
	} {
		_, err := result(f.at(s))
		require.Equal(t, want, job.CodeOf(err), s)
		require.ErrorContains(t, err, "no result")
		require.ErrorContains(t, err, string(s))
	}
	without := f.at(job.Succeeded)
	f.exec(`DELETE FROM results WHERE job_id = $1`, without.String())
	require.Equal(t, job.CodeResultNotFound, codeOf(result(without)))
}

// Promise: patterns Results
// Promise: patterns Retention
func TestResultExpires(t *testing.T) {
	f := setup(t)
	id, other := f.at(job.Succeeded), f.at(job.Succeeded)
	f.exec(`UPDATE results SET expires_at = clock_timestamp() WHERE job_id = $1`, id.String())
	before := f.job(id)
	requireGone := func() {
		var gone *job.Error
		require.ErrorAs(t, errOf(f.store.Result(f.ctx(), f.client, id)), &gone)
		require.Equal(t, job.CodeResultGone, gone.Code)
		require.Equal(t, before.Result.ExpiresAt, *gone.ExpiredAt)
	}
	requireGone() // clients no longer get the body, although it is still in the table
	f.clean(10)
	require.True(t, one[bool](f, `SELECT body IS NULL FROM results WHERE job_id = $1`, id.String()))
	requireGone()
	before.Result.Removed = true
	require.Equal(t, before, f.job(id), "the description remains")
	require.False(t, f.job(other).Result.Removed)
	_ = f.report(id, 0)
}

func (f *fixture) events(id job.ID, after, limit int) job.Log {
	return must(f.store.Events(f.ctx(), f.client, id, after, limit))(f.t)
}

func (f *fixture) requireSame(rows []event, got []job.Event) {
	require.Len(f.t, got, len(rows))
	for i, e := range got {
		require.Empty(f.t, cmp.Diff(rows[i], eventOf(f.t, e)))
		require.Equal(f.t, one[string](f, `SELECT event_id::text FROM events WHERE job_id = $1 AND seq = $2`, e.JobID.String(), e.Seq),
			e.ID.String())
	}
}

// Promise: contract 5c
// Promise: patterns Lifecycle States b
// Promise: draft 4.2
func TestEventsHaveTheEndOfTheirAttempt(t *testing.T) {
	f := setup(t)
	l := f.run(attempts(2), func(s *job.Submission) { s.Job.CorrelationID, s.Job.Language = "c-1", "de" })
	f.finish(withRetry(failure(l, job.FailedOnce), 0))
	end := failure(f.claim(l.JobID, 2), job.TimedOut)
	end.Exhausted = true
	f.finish(end)

	log := f.events(l.JobID, 0, 100)
	f.requireSame(f.log(l.JobID), each(log.Events, func(o job.Occurrence) job.Event { return o.Event }))
	origin := f.job(l.JobID).Origin()
	var ended []job.Attempt
	for _, e := range log.Events {
		require.Equal(t, origin, e.Origin)
		require.Equal(t, time.UTC, e.At.Location())
		require.Equal(t, e.Next.Final(), e.Ended != nil, "%s", e.Name)
		require.Nil(t, e.Batch)
		if e.Ended != nil {
			ended = append(ended, *e.Ended)
		}
	}
	first, second := f.report(l.JobID, 1), f.report(l.JobID, 2)
	f.requireSame(f.log(l.JobID)[:5], first.Events)
	require.Equal(t, []job.Origin{origin, origin}, []job.Origin{first.Origin, second.Origin})
	require.Equal(t, []job.Attempt{first.Attempt, second.Attempt}, ended)
	require.Equal(t, job.FailedOnce, ended[0].Failure.Reason, "the failure of the attempt itself")
	require.True(t, log.Ended)
	require.Equal(t, job.EventRetriesExhausted, log.Events[log.Last-1].Name)
}

func TestEventsInPages(t *testing.T) {
	f := setup(t)
	id := f.at(job.Succeeded) // created, queued, assigned, running, succeeded
	all := f.events(id, 0, 100)
	require.Len(t, all.Events, 5)
	for _, test := range []struct {
		after, limit int
		want         []job.Occurrence
		ended        bool
	}{
		{0, 2, all.Events[:2], false}, {2, 2, all.Events[2:4], false}, {4, 2, all.Events[4:], true}, {3, 2, all.Events[3:], true},
		{3, 1, all.Events[3:4], false}, {5, 2, nil, true}, {-7, 1, all.Events[:1], false},
	} {
		log := f.events(id, test.after, test.limit)
		require.Equal(t, []any{5, test.ended}, []any{log.Last, log.Ended}, "%+v", test)
		require.Equal(t, test.want, log.Events)
	}

	id = f.at(job.Failed)
	require.True(t, f.events(id, 0, 100).Ended)
	f.retry(id, 1)
	log := f.events(id, 5, 100)
	require.False(t, log.Ended)
	require.Equal(t, []string{job.EventRetried}, occurred(log.Events))
	require.Equal(t, job.Failed, f.events(id, 0, 5).Events[4].Ended.State, "the failed attempt keeps its end")
	log = f.events(f.submit(), 2, 100)
	require.Empty(t, log.Events)
	require.Equal(t, []any{2, false}, []any{log.Last, log.Ended})
}

func occurred(events []job.Occurrence) []string {
	return each(events, func(e job.Occurrence) string { return e.Name })
}

func (f *fixture) origins(id job.ID) map[string]job.Origin {
	attempts, _ := must2(f.store.Attempts(f.ctx(), f.client, id))(f.t)
	all := map[string]job.Origin{"job": f.job(id).Origin(), "attempts": attempts, "report": f.report(id, 0).Origin}
	for _, o := range f.events(id, 0, 100).Events {
		all["event "+o.Name] = o.Origin
	}
	for _, o := range (&follower{f: f}).readAll(1000) {
		if o.JobID == id {
			all["client's event "+o.Name] = o.Origin
		}
	}
	for _, m := range f.outcomes(100) {
		if m.JobID == id {
			all["outcome"] = m.Origin
		}
	}
	return all
}

func TestScenarioIsReadEverywhere(t *testing.T) {
	f := setup(t, streaming)
	planned := []job.PlannedFailure{{Attempts: []int{1}, Problem: job.PlannedProblem{Title: "Out of stock",
		Extensions: json.RawMessage(`{"item": 17}`)}}}
	id := f.failed(job.CustomFailed, func(s *job.Submission) {
		d := job.DefineCustom(job.Execute, &job.Behavior{Failures: planned, Duration: time.Second}, time.Now(), nil)
		s.Job.WorkKind, s.Job.Definition = job.Custom, &d
	})
	want, d := f.job(id).Origin(), f.job(id).Definition
	require.Equal(t, planned, want.Failures)
	require.Equal(t, job.Scenario{WorkKind: d.WorkKind, DurationMS: d.DurationMS, ExpectedOutcome: d.ExpectedOutcome}, want.Scenario)
	require.Positive(t, want.Scenario.DurationMS)
	origins := f.origins(id)
	require.Len(t, origins, 4+2*5, "each event is in both histories")
	for where, got := range origins {
		require.Equal(t, want, got, where)
	}
}

func TestClaimOfADamagedDefinition(t *testing.T) {
	f := setup(t, streaming)
	for _, definition := range []string{`NULL`, `'null'`, `'[]'`, `'"x"'`, `'{"duration_ms": "x"}'`} {
		id, canceled := f.submit(), f.submit()
		f.exec(`UPDATE jobs SET definition = ` + definition + ` WHERE state = 'QUEUED'`)
		c, _ := f.tryClaim(id, 1)
		require.NotNil(t, c, definition)
		if d := c.Job.Definition; d != nil {
			require.ErrorIs(t, d.Validate(), job.ErrBadDefinition, definition)
		}
		f.finish(failure(f.start(c.ClaimID), job.DefinitionInvalid))
		for where, got := range f.origins(id) {
			require.Equal(t, job.Scenario{WorkKind: f.job(id).WorkKind}, got.Scenario, "%s %s", where, definition)
		}
		f.cancel(canceled)
	}
}
