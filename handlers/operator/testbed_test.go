package operator_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// testbeds has a session, some rules and a clock.
type testbeds struct{ *store }

func aSession() verdict.Session {
	return verdict.Session{ID: anID.String(), Profile: fault.FlakyNetwork, Seed: 7, Rules: []string{"no-key-in-url"},
		CreatedAt: fault.Time(nowAt), EndedAt: new(fault.Time(nowAt)), Recorded: 3}
}

func (b testbeds) OwnedSessions(_ context.Context, client, after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error) {
	b.narrow.ClientID, b.narrow.After, b.narrow.Limit = client, after, limit
	return []testbed.OwnedSession{{ClientID: anID, Session: aSession()}}, b.nextID(), b.err
}

func (b testbeds) OwnedSession(_ context.Context, id job.ID) (testbed.OwnedSession, error) {
	return testbed.OwnedSession{ClientID: anID, Session: aSession()}, b.find(id)
}

func (b testbeds) StartOwned(_ context.Context, client job.ID, n verdict.Session) (testbed.OwnedSession, error) {
	b.done = append(b.done, "start session")
	n.ID, n.CreatedAt, n.Rules = anID.String(), fault.Time(nowAt), []string{"no-key-in-url"}
	return testbed.OwnedSession{ClientID: client, Session: n}, b.err
}

func (b testbeds) EndOwned(_ context.Context, id job.ID) (testbed.OwnedSession, error) {
	if err := b.find(id); err != nil {
		return testbed.OwnedSession{}, err
	}
	b.done = append(b.done, "end session")
	return testbed.OwnedSession{ClientID: anID, Session: aSession()}, nil
}

// Operators start a session of a client with a profile, and end it.
func TestOperatorsStartSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := func(session string) string { return `{"client_id":"` + anID.String() + `","session":` + session + `}` }
	r := w.post("/admin/v1/testbed/sessions", body(`{"profile":"overloaded","seed":3}`))
	require.Equal(t, 201, r.StatusCode, r.text)
	require.Contains(t, r.text, `"profile":"overloaded","seed":3`)
	wrong := w.post("/admin/v1/testbed/sessions", body(`{"profile":"x"}`))
	require.Equal(t, 400, wrong.StatusCode)
	require.Contains(t, wrong.text, `"pointer":"/session/profile"`)
	require.Equal(t, 200, w.send(changeToken, "POST", "/admin/v1/testbed/sessions/"+anID.String()+"/end", "").StatusCode)
	require.Contains(t, w.get("/admin/v1/catalogue").text, `"profiles":["default","flaky-network","overloaded"`)
}

func (b testbeds) OwnedVerdict(_ context.Context, id job.ID) (testbed.OwnedVerdict, error) {
	log := &verdict.Log{}
	log.Add(&verdict.Exchange{
		Start: nowAt, End: nowAt, Method: "GET", Path: "/v1/jobs", Query: "password=planted&a=<b>", KeyInURL: true, Status: 400,
	})
	return testbed.OwnedVerdict{ClientID: anID, Verdict: verdict.Of(&verdict.Record{Session: aSession(), Log: log, Now: nowAt})}, b.find(id)
}

func (b testbeds) OwnedFaults(_ context.Context, client job.ID, limit int) ([]testbed.OwnedRule, error) {
	b.narrow.ClientID = client
	rules := make([]testbed.OwnedRule, min(limit, b.rules))
	for i := range rules {
		rules[i] = testbed.OwnedRule{ClientID: anID, Label: "a test", View: fault.View{
			RuleID: anID.String(), Match: fault.Match{Operation: "submitJob"}, Effect: fault.Effect{Status: 503}, Seen: 5, Applied: 2}}
	}
	return rules, b.err
}

func (b testbeds) NextClock(context.Context) (testbed.NextClock, error) {
	return testbed.NextClock{ClockState: testbed.ClockState{Now: now, Rate: 1}, NextDueAt: &now}, b.err
}

func (b testbeds) MoveClock(context.Context, testbed.ClockMove) (testbed.NextClock, error) {
	return testbed.NextClock{ClockState: testbed.ClockState{Now: now, Rate: 1}}, b.did("move clock")
}

// Sessions and rules can be those of one client; of rules it is said that there are more; a verdict is a page, too, and shows nothing
// that is masked.
func TestTestbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := anID.String()
	w.store.nexts = []job.ID{anID}
	cursor := w.get("/admin/v1/testbed/sessions?limit=3&client_id=" + id).cursor(t)
	require.Equal(t, []any{anID, 3}, []any{w.store.narrow.ClientID, w.store.narrow.Limit})
	require.Contains(t, w.get("/admin/v1/testbed/sessions?limit=3&client_id="+id+"&cursor="+cursor).text, `"client_id":"`+id+`"`)
	require.Equal(t, anID, w.store.narrow.After)

	require.Contains(t, w.get("/admin/v1/testbed/faults?client_id="+id).text, `{"data":[],"more":false}`)
	require.Equal(t, anID, w.store.narrow.ClientID)
	w.store.rules = 2000
	var list struct {
		Data []any
		More bool
	}
	w.get("/admin/v1/testbed/faults").json(t, &list)
	require.Len(t, list.Data, 1000)
	require.True(t, list.More)

	verdict, page := w.get("/admin/v1/testbed/sessions/"+id+"/verdict"), w.get("/admin/v1/testbed/sessions/"+id+"/verdict.html")
	require.Contains(t, verdict.text, `"request":"GET /v1/jobs?password=***\u0026a=\u003cb\u003e"`)
	require.Contains(t, page.text, "GET /v1/jobs?password=***&amp;a=&lt;b&gt;")
	require.NotContains(t, page.text, "planted")
	journal := w.get("/admin/v1/testbed/sessions/" + id + "/journal").text
	require.Contains(t, journal, `"request":"GET /v1/jobs?password=***&a=<b>"`)
	require.Contains(t, journal, `"breaks":["no-key-in-url"]`)
	require.Equal(t, 404, w.get("/admin/v1/testbed/sessions/x").StatusCode)
}

// What is kept of a move says how the clock was moved.
func TestMoveClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, body := range []string{`{"advance":"720h0m0s"}`, `{"set":"2030-01-31T12:00:00.000000Z"}`, `{"freeze":true}`, `{"rate":60}`} {
		r := w.post("/admin/v1/testbed/clock", body)
		require.Equal(t, 200, r.StatusCode, r.text)
		require.JSONEq(t, body, string(w.store.entries[len(w.store.entries)-1].Detail))
	}
	for _, body := range []string{``, `{}`, `{"advance":"-1s"}`, `{"advance":"1h","freeze":true}`} {
		require.Equal(t, 400, w.post("/admin/v1/testbed/clock", body).StatusCode, body)
	}
	require.Len(t, w.store.done, 4)
}

// Where there is no test bed, nothing of it is there.
func TestWithoutATestbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, w.get("/admin/v1/system").text, `"test_bed":true`)
	w = newWorld(t, func(_ *operator.Config, d *operator.Deps) { d.Testbed = nil })
	require.Contains(t, w.get("/admin/v1/system").text, `"test_bed":false`)
	for _, path := range []string{"sessions", "sessions/" + anID.String(), "faults", "clock"} {
		require.Equal(t, 404, w.get("/admin/v1/testbed/"+path).StatusCode, path)
	}
	require.Equal(t, 404, w.post("/admin/v1/testbed/clock", `{"freeze":true}`).StatusCode)
}
