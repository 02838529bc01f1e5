package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/operator"
	beds "github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
)

func TestOperatorsStartSessions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.post("/admin/v1/testbed/sessions", ofClient("session", `{"profile":"overloaded","seed":3}`)).requireStatus(t, 201)
	require.Contains(t, r.text, `"profile":"overloaded","seed":3`)
	wrong := w.post("/admin/v1/testbed/sessions", ofClient("session", `{"profile":"x"}`)).requireStatus(t, 400)
	require.Contains(t, wrong.text, `"pointer":"/session/profile"`)
	require.Equal(t, 200, w.send(changeToken, "POST", "/admin/v1/testbed/sessions/"+backend.Session.String()+"/end", "").StatusCode)
	require.Contains(t, w.get("/admin/v1/catalogue").text, `"profiles":["default","flaky-network","overloaded"`)
}

// Sessions and rules can be filtered by client. A verdict is also available as a page, without masked values.
func TestTestbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := "client_id=" + backend.ClientA.String()
	first := w.get("/admin/v1/testbed/sessions?limit=1&" + client)
	second := w.get("/admin/v1/testbed/sessions?limit=1&" + client + "&cursor=" + first.cursor(t))
	require.NotEqual(t, first.text, second.text)
	require.Contains(t, second.text, `"`+client[:9]+`":"`+client[10:]+`"`)
	require.Contains(t, w.get("/admin/v1/testbed/sessions?client_id="+backend.ClientB.String()).text, `"data":[]`)

	require.Contains(t, w.get("/admin/v1/testbed/faults?client_id="+backend.ClientB.String()).text, `{"data":[],"more":false}`)
	require.Contains(t, w.get("/admin/v1/testbed/faults?"+client).text, `"rule_id":"`+backend.Rule.String())
	w.Exec(`INSERT INTO testbed_faults (client_id, position, rule_id, rule, seed)
		SELECT client_id, position + i, gen_random_uuid(), rule, seed FROM testbed_faults, generate_series(1, 1999) i`)
	var list struct {
		Data []any
		More bool
	}
	w.get("/admin/v1/testbed/faults").json(t, &list)
	require.Len(t, list.Data, 1000)
	require.True(t, list.More)

	session := "/admin/v1/testbed/sessions/" + backend.Session.String()
	w.Exec(`UPDATE testbed_sessions SET rules = '{no-key-in-url}'`)
	require.NoError(t, w.Testbed.Record(t.Context(), beds.Scope{Client: backend.ClientA, Session: backend.Session}, &verdict.Exchange{
		Start: time.Now(), End: time.Now(), Method: "GET", Path: "/v1/jobs", Query: "password=planted&a=<b>", KeyInURL: true, Status: 400,
	}))
	verdict, page := w.get(session+"/verdict"), w.get(session+"/verdict.html")
	require.Contains(t, verdict.text, `"request":"GET /v1/jobs?password=***\u0026a=\u003cb\u003e"`)
	require.Contains(t, page.text, "GET /v1/jobs?password=***&amp;a=&lt;b&gt;")
	require.NotContains(t, page.text, "planted")
	journal := w.get(session + "/journal").text
	require.Contains(t, journal, `"request":"GET /v1/jobs?password=***&a=<b>"`)
	require.Contains(t, journal, `"breaks":["no-key-in-url"]`)
	require.Equal(t, 404, w.get("/admin/v1/testbed/sessions/x").StatusCode)
}

// The audit entry of a clock move says how the clock was moved.
func TestMoveClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, body := range []string{`{"advance":"720h0m0s"}`, `{"set":"2035-01-31T12:00:00.000000Z"}`, `{"freeze":true}`, `{"rate":60}`} {
		w.post("/admin/v1/testbed/clock", body).requireStatus(t, 200)
		require.JSONEq(t, body, string(w.audit()[0].Detail))
	}
}

func TestWithoutATestbed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, w.get("/admin/v1/system").text, `"test_bed":true`)
	w = newWorld(t, func(_ *operator.Config, d *operator.Deps) { d.Testbed = nil })
	require.Contains(t, w.get("/admin/v1/system").text, `"test_bed":false`)
	for _, path := range []string{"sessions", "sessions/" + backend.Session.String(), "faults", "clock"} {
		require.Equal(t, 404, w.get("/admin/v1/testbed/"+path).StatusCode, path)
	}
	require.Equal(t, 404, w.post("/admin/v1/testbed/clock", `{"freeze":true}`).StatusCode)
}
