package repo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (f *fixture) label(name, request string) testbed.Scope {
	require.NoError(f.t, f.store.OpenLabeled(f.ctx(), f.client, newID(), name, verdict.MaxSessions))
	session, _ := must2(f.store.EnterSession(f.ctx(), f.client, name, request))(f.t)
	require.False(f.t, session.IsZero())
	return testbed.Scope{Client: f.client, Session: session}
}

func (f *fixture) openSessions() int {
	return f.count("testbed_sessions WHERE ended_at IS NULL")
}

func TestLabeledSessions(t *testing.T) {
	f := setup(t)
	own := of(f.client)
	require.NoError(t, f.store.OpenLabeled(f.ctx(), f.client, newID(), "a", 10))
	session, unlabeled := must2(f.store.EnterSession(f.ctx(), f.client, "a", "r"))(t)
	require.True(t, session.IsZero() && !unlabeled, "no session is open")

	main, _ := must2(f.store.StartSession(f.ctx(), f.client, newSession(), 10))(t)
	rule := fault.Counted{Rule: fault.Rule{Effect: fault.Effect{Status: 503}}, ID: newID().String(), Position: 1}
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), own, 7, []fault.Counted{rule}))
	must(f.store.CountFaults(f.ctx(), own, "getJob", ""))(t)
	f.atOnce(8, func(int) error { return f.store.OpenLabeled(f.ctx(), f.client, newID(), "a", 10) })
	a, b := f.label("a", ""), f.label("b", "")
	require.NotEqual(t, a, b)
	require.Equal(t, 3, f.openSessions())
	n, _ := must2(f.store.Session(f.ctx(), f.client, a.Session))(t)
	require.Equal(t, []any{"a", main.Profile, main.Seed, main.Rules}, []any{n.Label, n.Profile, n.Seed, n.Rules})
	list := must(f.store.Sessions(f.ctx(), f.client, new("a")))(t)
	require.Equal(t, []verdict.Session{n}, list)

	for range 2 {
		must(f.store.CountFaults(f.ctx(), a, "getJob", ""))(t)
	}
	require.True(t, must(f.store.FaultApplied(f.ctx(), a, rule))(t))
	for of, seen := range map[testbed.Scope]int64{own: 1, a: 2, b: 0} {
		c := must(f.store.Faults(f.ctx(), of))(t)[0]
		require.Equal(t, []any{rule.Rule, int64(7), seen, c.Applied == 1}, []any{c.Rule, c.Seed, c.Seen, of == a})
	}
	for _, of := range []testbed.Scope{own, a, a} {
		require.True(t, must(f.store.Record(f.ctx(), of, &verdict.Exchange{Method: "GET"}))(t))
	}
	for of, recorded := range map[string]int{main.ID: 1, a.Session.String(): 2, b.Session.String(): 0} {
		require.Equal(t, recorded, one[int](f, `SELECT exchanges FROM testbed_sessions WHERE session_id = $1`, of))
	}

	must2(f.store.EndSession(f.ctx(), f.client, b.Session))(t)
	require.Equal(t, 2, f.openSessions(), "the other sessions stay open")
	require.Len(t, must(f.store.Faults(f.ctx(), own))(t), 1)
	require.False(t, must(f.store.Record(f.ctx(), b, &verdict.Exchange{}))(t))
	must2(f.store.EndSession(f.ctx(), f.client, sessionID(main)))(t)
	require.Zero(t, f.openSessions())
	require.Zero(t, f.count("testbed_faults"))
}

func TestJobsAreOfTheSessionOfTheirRequest(t *testing.T) {
	f := setup(t)
	main, _ := must2(f.store.StartSession(f.ctx(), f.client, newSession(), 10))(t)
	rule := fault.Counted{ID: newID().String(), Rule: fault.Rule{
		Match: fault.Match{Operation: fault.Delivery}, Effect: fault.Effect{Drop: true},
	}}
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), of(f.client), 7, []fault.Counted{rule}))
	requested := func(id string) func(*job.Submission) { return func(s *job.Submission) { s.Job.RequestID = id } }
	a, b := f.label("a", "r-a"), f.label("b", "r-b")
	f.label("b", "r-b")
	jobs := map[testbed.Scope]job.ID{
		of(f.client): f.submit(requested("r")), a: f.submit(requested("r-a")), b: f.submit(requested("r-b")),
	}
	for scope, id := range jobs {
		n := main
		if !scope.Session.IsZero() {
			n, _ = must2(f.store.Session(f.ctx(), f.client, scope.Session))(t)
		}
		runs := must(f.store.Recorded(f.ctx(), f.client, n))(t).Runs
		require.Len(t, runs, 1)
		require.Equal(t, id.String(), runs[0].ID)
	}
	for request, scope := range map[string]testbed.Scope{"r": of(f.client), "r-a": a, "r-b": b} {
		for _, p := range []job.ClaimedDelivery{
			{Delivery: job.Delivery{ClientID: f.client}, RequestID: request},
			{Delivery: job.Delivery{ClientID: f.client}, Occurrence: job.Occurrence{Batch: &job.Batch{RequestID: request}}},
		} {
			found, rules, err := f.store.CountDelivery(f.ctx(), &p)
			require.NoError(t, err)
			require.Equal(t, scope, found)
			require.Len(t, rules, 1)
		}
		require.EqualValues(t, 2, must(f.store.Faults(f.ctx(), scope))(t)[0].Seen)
	}
}

func TestLabeledSessionsAreBounded(t *testing.T) {
	f := setup(t)
	const keep = 3
	main, _ := must2(f.store.StartSession(f.ctx(), f.client, newSession(), keep))(t)
	for range 4 {
		require.NoError(t, f.store.OpenLabeled(f.ctx(), f.client, newID(), "a", keep))
		session, _ := must2(f.store.EnterSession(f.ctx(), f.client, "a", newID().String()))(t)
		must(f.store.Record(f.ctx(), testbed.Scope{Client: f.client, Session: session}, &verdict.Exchange{}))(t)
		must2(f.store.EndSession(f.ctx(), f.client, session))(t)
	}
	require.Equal(t, []int{keep, 2, 4}, []int{f.count("testbed_sessions"), f.count("testbed_exchanges"), f.count("testbed_requests")})
	f.exec(`UPDATE testbed_sessions SET bytes = $1`, verdict.MaxAllBytes)
	must2(f.store.EndSession(f.ctx(), f.client, sessionID(main)))(t)
	must2(f.store.StartSession(f.ctx(), f.client, newSession(), 100))(t)
	require.Equal(t, 4, f.count("testbed_sessions"), "a session counts at most the bytes that it stores")
	for _, label := range []string{"b", "c", "d", "e"} {
		require.NoError(t, f.store.OpenLabeled(f.ctx(), f.client, newID(), label, keep))
	}
	require.Equal(t, keep, f.openSessions())
	_, ok := must2(f.store.StartSession(f.ctx(), f.client, verdict.Session{ID: newID().String(), Label: "f"}, keep))(t)
	require.False(t, ok)
	require.Equal(t, []int{keep, 0, 0}, []int{f.count("testbed_sessions"), f.count("testbed_exchanges"), f.count("testbed_requests")})
}
