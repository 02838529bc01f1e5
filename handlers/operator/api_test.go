package operator_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// A line about a failure names the client of the path.
func TestAuthenticationFailuresNameTheClient(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := newWorld(t, func(_ *operator.Config, d *operator.Deps) { d.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	w.send("wrong-token-of-somebody", "POST", "/admin/v1/clients/"+anID.String()+"/keys", `{}`)
	require.Contains(t, out.String(), "client_id="+anID.String())
	out.Reset()
	w.send("", "GET", "/admin/v1/jobs/"+anID.String(), "")
	require.Contains(t, out.String(), `reason="no token"`)
	require.NotContains(t, out.String(), "client_id")
}

// Every operation of the document is there for operators only; those that only read change nothing, and
// every change is in the audit log as the one it is, whose filter knows it.
func TestAccess(t *testing.T) {
	t.Parallel()
	for _, o := range documented(t) {
		w := newWorld(t)
		for _, token := range []string{"", "wrong-token-of-somebody", "frk_abc_def"} {
			r := w.send(token, o.method, o.path, o.body())
			require.Equal(t, http.StatusUnauthorized, r.StatusCode, o)
			require.Contains(t, r.text, `"RFA_AUTH_INVALID_CREDENTIALS"`)
		}
		reader := w.send(readToken, o.method, o.path, o.body())
		if o.method == "GET" {
			require.Equal(t, http.StatusOK, reader.StatusCode, "%s %s", o, reader.text)
		} else {
			require.Equal(t, http.StatusForbidden, reader.StatusCode, o)
			require.Contains(t, reader.text, `"RFA_AUTH_FORBIDDEN"`)
		}
		require.Empty(t, w.store.done, o)
		require.Empty(t, w.store.entries, o)
		const request = "0190a1b2-c3d4-7000-8000-000000000b01"
		r := w.send(changeToken, o.method, o.path, o.body(), "X-Request-Id", request)
		require.Less(t, r.StatusCode, 300, "%s %s", o, r.text)
		require.Len(t, w.store.entries, len(w.store.done))
		if o.method == "GET" {
			require.Empty(t, w.store.done, o)
			continue
		}
		require.Len(t, w.store.done, 1, o)
		e := w.store.entries[0]
		require.Equal(t, []string{"ann", request}, []string{e.Operator, e.RequestID})
		require.Equal(t, strings.Contains(o.path, anID.String()), e.TargetID != nil, o)
		require.Equal(t, r.StatusCode, w.store.ended[0], o)
		if e.TargetID == nil && e.Action != "move_clock" {
			require.Equal(t, anID.String(), w.store.ended[1], "what was made")
		}
		require.Equal(t, http.StatusOK, w.get("/admin/v1/audit?action="+e.Action+"&operator=ann&target_id=x").StatusCode, e.Action)
		require.Equal(t, admin.AuditQuery{Action: e.Action, Operator: "ann", TargetID: "x", Limit: 50}, w.store.auditQ)
	}
}

// The document has what the API has: each path and method that is not there is refused, with the methods that are.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	methods := map[string]string{}
	for _, o := range documented(t) {
		methods[o.path] += o.method + " "
	}
	for path, has := range methods {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if !strings.Contains(has, method+" ") {
				r := w.send(changeToken, method, path, "")
				require.Equal(t, http.StatusMethodNotAllowed, r.StatusCode, "%s %s", method, path)
				allowed := strings.Fields(strings.Replace(has, "GET ", "GET HEAD ", 1))
				require.ElementsMatch(t, allowed, strings.Split(r.Header.Get("Allow"), ", "), path)
			}
		}
		r := w.send(changeToken, "BREW", path, "")
		require.Equal(t, http.StatusNotImplemented, r.StatusCode, "%s: HTTP does not define the method", path)
		require.Contains(t, r.text, `"code":"RFA_REQUEST_METHOD_NOT_ALLOWED"`)
		require.Empty(t, r.Header.Get("Allow"))
	}
	require.Equal(t, http.StatusNotImplemented, w.send(changeToken, "get", "/admin/v1/jobs", "").StatusCode)
	for _, path := range nowhere { // none is another one's alias
		require.Equal(t, http.StatusNotFound, w.get(path).StatusCode, path)
		require.Equal(t, http.StatusUnauthorized, w.send("", "GET", path, "").StatusCode, path)
	}
	require.Equal(t, http.StatusNotFound, w.get("/admin/v1/jobs/x").StatusCode)
	require.Equal(t, http.StatusNotFound, w.get("/admin/v1/jobs/00000000-0000-0000-0000-000000000000").StatusCode)
	require.Equal(t, http.StatusOK, w.send(readToken, "HEAD", "/admin/v1/jobs", "").StatusCode)
	require.Equal(t, http.StatusOK, w.get("/admin/v1/jobs/"+strings.ReplaceAll(anID.String(), "-", "%2D")).StatusCode)
}

// What cannot be kept is not done; what failed is kept as that.
func TestAuditComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.err = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The database cannot be reached."}
	r := w.post("/admin/v1/clients", "")
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	require.NotEmpty(t, r.Header.Get("Retry-After"))
	require.Empty(t, w.store.done)

	w = newWorld(t)
	r = w.post("/admin/v1/jobs", `{"client_id":"`+anID.String()+`","job":{"type":"EXECUTE","nope":1}}`)
	require.Equal(t, http.StatusBadRequest, r.StatusCode)
	require.Contains(t, r.text, `"pointer":"/job/nope"`)
	require.Equal(t, []any{http.StatusBadRequest, ""}, w.store.ended)
	require.Empty(t, w.store.done)
}

// What became of a use case that panics is not known: its entry has no end.
func TestPanicsLeaveTheEntryOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.panics = true
	r := w.post("/admin/v1/jobs/"+anID.String()+"/cancel", "")
	require.Equal(t, http.StatusInternalServerError, r.StatusCode)
	require.NotContains(t, r.text, "broken use case")
	require.Len(t, w.store.entries, 1)
	require.Empty(t, w.store.ended)
}

// A retry beyond the rules is one that was asked for, and the log says so.
func TestOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/admin/v1/jobs/" + anID.String() + "/retry"
	for _, body := range []string{"", `{}`, `{"override":false}`, `{"override":true}`} {
		require.Equal(t, http.StatusAccepted, w.post(path, body).StatusCode, body)
	}
	require.Equal(t, []string{"retry", "retry", "retry", "retry anyway"}, w.store.done)
	require.JSONEq(t, `{"override":false}`, string(w.store.entries[0].Detail))
	require.JSONEq(t, `{"override":true}`, string(w.store.entries[3].Detail))
	require.Equal(t, http.StatusBadRequest, w.post(path, `{"overide":true}`).StatusCode)
	require.Len(t, w.store.entries, 4)
}

// The filter has the names of the list of jobs; a dry run changes nothing.
func TestBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := anID.String()
	filter := `{"state":"FAILED","kind":"CPU_BURST","type":"EXECUTE","client_id":"` + id + `","batch_id":"` + id + `","correlation_id":"a",` +
		`"failure_code":"RFA_INTERNAL","failure_detail":"It failed.","from":"2030-01-02T03:04:05.000006Z","to":"2030-01-02T03:04:05.000006Z"}`
	r := w.post("/admin/v1/bulk", `{"action":"retry","filter":`+filter+`,"dry_run":true,"override":true,"rate":7}`)
	require.Equal(t, http.StatusOK, r.StatusCode, r.text)
	require.Contains(t, r.text, `"sample":[{"job_id":"`+id+`"`)
	require.Contains(t, r.text, `"changes":1,"left":[{"result":"FAILED","code":"RFA_JOB_CONFLICT","detail":"It cannot.","count":3}]`)
	require.Empty(t, w.store.done)
	at := now
	require.Equal(t, job.BulkRequest{
		Owner: job.BulkOwner{Operator: "ann"}, Action: job.BulkRetry, DryRun: true, Rate: 7, Override: true, RequestID: w.store.bulk.RequestID,
		Filter: job.BulkFilter{
			State: job.Failed, WorkKind: job.CPUBurst, Type: job.Execute, ClientID: anID, BatchID: anID, CorrelationID: "a",
			FailureCode: job.CodeInternal, FailureDetail: "It failed.", CreatedAfter: &at, CreatedBefore: &at,
		},
	}, w.store.bulk)
	require.JSONEq(t, `{"action":"retry","filter":`+filter+`,"dry_run":true,"override":true,"rate":7}`, string(w.store.entries[0].Detail))
	for _, body := range []string{"", `{}`, `{"action":"retry","filter":{}}`, `{"action":"burn","filter":{"all":true}}`,
		`{"action":"retry","filter":{"work_kind":"CPU_BURST"}}`, `{"action":"cancel","filter":{"all":true},"override":true}`} {
		require.Equal(t, http.StatusBadRequest, w.post("/admin/v1/bulk", body).StatusCode, body)
	}
	require.Contains(t, w.get("/admin/v1/bulk/"+id).text, `"left":[{"result":"FAILED"`)
	require.JSONEq(t, `{"data":[{"type":"jobs","id":"`+id+`","client_id":"`+id+`"}]}`, w.get("/admin/v1/find?id="+id).text)
	w.store.nexts = []job.ID{anID}
	cursor := w.get("/admin/v1/bulk/" + id + "/items?result=SKIPPED&limit=3").cursor(t)
	w.get("/admin/v1/bulk/" + id + "/items?result=SKIPPED&cursor=" + cursor)
	require.Equal(t, job.BulkQuery{After: anID, Limit: 50, Result: job.ItemSkipped}, w.store.bulkQuery)
}

func TestFiltersReachStorage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	id := anID.String()
	w.get("/admin/v1/jobs?client_id=" + id + "&batch_id=" + id + "&state=FAILED&type=EXECUTE&kind=CPU_BURST&correlation_id=a%20b" +
		"&failure_code=RFA_INTERNAL&from=2030-01-01T00:00:00Z&to=2030-01-01T00:00:00Z&limit=7")
	require.Equal(t, admin.JobQuery{
		ClientID: anID, BatchID: anID, State: job.Failed, Type: job.Execute, WorkKind: job.CPUBurst, CorrelationID: "a b",
		FailureCode: job.CodeInternal, From: &at, To: &at, Limit: 7,
	}, w.store.query)
	w.get("/admin/v1/deliveries?client_id=" + id + "&webhook_id=" + id + "&job_id=" + id + "&state=FAILED&event_name=job.failed&limit=3")
	require.Equal(t, admin.Range{
		ClientID: anID, WebhookID: anID, JobID: anID, State: "FAILED", EventName: "job.failed", Limit: 3,
	}, w.store.narrow)
	w.get("/admin/v1/webhooks?enabled=false")
	require.False(t, *w.store.narrow.Enabled)
	w.get("/admin/v1/clients?named=true")
	require.True(t, *w.store.narrow.Named)
	w.get("/admin/v1/failures?code=RFA_INTERNAL&kind=CPU_BURST")
	require.Equal(t, admin.Range{Code: job.CodeInternal, WorkKind: job.CPUBurst, Limit: 50}, w.store.narrow)
}

// A cursor leads to the place where its page ended, and belongs to its list and filters.
func TestCursors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	place := admin.Place{At: time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC), ID: anID}
	w.store.places = []admin.Place{place}
	cursor := w.get("/admin/v1/jobs?state=FAILED").cursor(t)
	require.Equal(t, http.StatusOK, w.get("/admin/v1/jobs?state=FAILED&limit=3&cursor="+cursor).StatusCode)
	require.Equal(t, place, w.store.query.After)
	for _, other := range []string{"jobs?cursor=", "jobs?state=SUCCEEDED&cursor=", "webhooks?cursor="} {
		require.Equal(t, http.StatusBadRequest, w.get("/admin/v1/"+other+cursor).StatusCode, other)
	}
	for _, list := range []string{"workers", "clients", "webhooks", "deliveries", "batches", "audit"} {
		w.store.nexts = []job.ID{anID}
		cursor := w.get("/admin/v1/" + list).cursor(t)
		require.Equal(t, http.StatusOK, w.get("/admin/v1/"+list+"?cursor="+cursor).StatusCode, list)
		after := w.store.narrow.After
		if list == "audit" {
			after = w.store.auditQ.After
		}
		require.Equal(t, anID, after, list)
	}
}

// Values of members that are named are hidden, how deep they may lie; everything else stays as it was sent.
func TestMask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.job.Params = json.RawMessage(`{"user":"ann","Password":"x","big":12345678901234567890,"list":[{"my_secret":{"a":[1]}, "b": 1.0}],
		"a":1,"a":2,"<b>":"</script>"}`)
	w.store.job.Events = []admin.Event{{
		EventID: anID, Seq: 1, JobID: anID, EventName: "event.emitted", Attempt: 1, Timestamp: now,
		Data: json.RawMessage(`{"data":{"db_password":1}}`),
	}}
	r := w.get("/admin/v1/jobs/" + anID.String())
	require.Contains(t, r.text, `"params":{"user":"ann","Password":"***","big":12345678901234567890,"list":[{"my_secret":"***","b":1.0}],`+
		`"a":1,"a":2,"\u003cb\u003e":"\u003c/script\u003e"}`)
	require.Contains(t, r.text, `"data":{"data":{"db_password":"***"}}`)
}

// A secret that a client or a receiver sends is in no answer, wherever it can be. The fake has all that storage keeps as JSON.
func TestSecretsOfClientsAreInNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	planted := json.RawMessage(`{"my_secret":"planted","emit":{"data":{"db_password":"planted"}},"behavior":[{"PASSWORD":"planted"}]}`)
	w.store.job.Events = []admin.Event{{EventID: anID, Seq: 1, JobID: anID, EventName: "event.emitted", Attempt: 1, Timestamp: now}}
	body := string(planted)
	w.store.attempts = []admin.DeliveryAttempt{{Number: 1, StartedAt: now, Response: &admin.Response{Body: &body}}}
	require.Equal(t, 3, plant(reflect.ValueOf(&w.store.job), planted), "what is added must be hidden too")
	require.Equal(t, 1, plant(reflect.ValueOf(w.store.attempts), json.RawMessage(`{"X-My-Secret":["planted"],"Date":["today"]}`)))
	for _, path := range []string{"jobs/" + anID.String(), "deliveries/" + anID.String()} {
		text := w.get("/admin/v1/" + path).text
		require.Contains(t, text, `***`, path)
		require.NotContains(t, text, "planted", path)
	}
	require.NotContains(t, w.post("/admin/v1/deliveries/"+anID.String()+"/redeliver", "").text, "planted")

	id := anID.String()
	w.store.url = "https://receiver.example/hook?a=b&my%5fsecret=planted&c=d#x_secret=planted"
	for _, text := range []string{`{"my_secret":"planted","cut":"of`, "\ufeff{\"my_secret\":\"planted\"}", "my_secret=planted&a=b",
		"m\x00y\x00_\x00s\x00e\x00c\x00r\x00e\x00t\x00=planted", "{\"my_secret\":\"planted\"}\n{}\n", "data: {\"MY_SECRET\": \"planted\"}\n\n"} {
		w.store.attempts = []admin.DeliveryAttempt{{Number: 1, StartedAt: now, Response: &admin.Response{Body: &text,
			Headers: json.RawMessage(`{"Location":["/x?the_secret=planted&y=z"]}`)}}}
		for _, path := range []string{"jobs/" + id, "deliveries/" + id, "deliveries", "webhooks", "webhooks/" + id} {
			shown := w.get("/admin/v1/" + path).text
			require.Contains(t, shown, `=***`, path)
			require.NotContains(t, shown, "planted", path)
			require.Contains(t, shown, "a=b", path)
		}
	}
	text := "<p>Not today</p>"
	w.store.attempts[0].Response = &admin.Response{Headers: json.RawMessage(`{}`), Body: &text}
	require.Contains(t, w.get("/admin/v1/deliveries/"+id).text, "Not today")
}

// plant puts a value into all members of a view that are JSON of others, and gives their number.
func plant(v reflect.Value, value json.RawMessage) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n += plant(v.Elem(), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += plant(v.Field(i), value)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes(value)
			return 1
		}
		for i := range v.Len() {
			n += plant(v.Index(i), value)
		}
	}
	return n
}

// A job links to its trace where the operator said how; a result is saved, never shown as a page of this origin.
func TestLinksOfAJob(t *testing.T) {
	t.Parallel()
	trace, address := "4bf92f3577b34da6a3ce929d0e0e4736", "https://traces.example.com/"+operator.TraceIDMark+"?of=forgerun"
	path := "/admin/v1/jobs/" + anID.String()
	none, with := newWorld(t), newWorld(t, func(c *operator.Config, _ *operator.Deps) { c.TraceURL = address })
	require.Contains(t, with.get(path).text, `"trace_url":null`)
	none.store.job.TraceID, with.store.job.TraceID = &trace, &trace
	require.Contains(t, none.get(path).text, `"trace_url":null`)
	require.Contains(t, with.get(path).text, `"trace_url":"https://traces.example.com/`+trace+`?of=forgerun"`)
	r := none.get(path + "/result")
	require.Equal(t, `attachment; filename="`+anID.String()+`"`, r.Header.Get("Content-Disposition"))
	require.Equal(t, "application/octet-stream", r.Header.Get("Content-Type"), "whatever type its client gave it")
	require.Equal(t, "<b>", r.text)
}

func TestSubmitInTheNameOfAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.post("/admin/v1/jobs", operation{"POST", "/admin/v1/jobs"}.body(), "Idempotency-Key", "k1")
	require.Equal(t, []any{anID, "k1", job.SuccessFast, "en"},
		[]any{w.store.request.ClientID, w.store.request.IdempotencyKey, w.store.request.WorkKind, w.store.request.Language})
}
