package operator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestAuthenticationFailuresNameTheClient(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := newWorld(t, func(_ *operator.Config, d *operator.Deps) { d.Log = slog.New(slog.NewTextHandler(&out, nil)) })
	w.send("wrong-token-of-somebody", "POST", "/admin/v1/clients/"+backend.ClientA.String()+"/keys", `{}`)
	require.Contains(t, out.String(), "client_id="+backend.ClientA.String())
	out.Reset()
	w.send("", "GET", "/admin/v1/jobs/"+anID.String(), "")
	require.Contains(t, out.String(), `reason="no token"`)
	require.NotContains(t, out.String(), "client_id")
}

// All operations require an operator's credentials; read-only operators cannot change anything. Every change is in the audit log, and the
// log's filters find the entry.
func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, o := range documented(t) {
		w.Seed()
		for _, token := range []string{"", "wrong-token-of-somebody", "frk_abc_def"} {
			r := w.send(token, o.method, o.path, o.body())
			require.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, r.StatusCode, o)
		}
		reader := w.send(readToken, o.method, o.path, o.body())
		if o.method == "GET" {
			require.Equal(t, http.StatusOK, reader.StatusCode, "%s %s", o, reader.text)
		} else {
			require.Equal(t, http.StatusForbidden, reader.StatusCode, o)
			require.Contains(t, reader.text, `"RFA_AUTH_FORBIDDEN"`)
		}
		require.Empty(t, w.audit(), o)
		const request = "0190a1b2-c3d4-7000-8000-000000000b01"
		r := w.send(changeToken, o.method, o.path, o.body(), "X-Request-Id", request)
		require.Less(t, r.StatusCode, 300, "%s %s", o, r.text)
		entries := w.audit()
		if o.method == "GET" {
			require.Empty(t, entries, o)
			continue
		}
		require.Len(t, entries, 1, o)
		e := entries[0]
		require.Equal(t, []any{"ann", request, r.StatusCode}, []any{e.Operator, e.RequestID, *e.Status}, o)
		require.Equal(t, e.Action == "move_clock", e.TargetID == nil, "the target is the changed or created resource")
		found := w.get("/admin/v1/audit?action=" + e.Action + "&operator=ann")
		require.Contains(t, found.text, `"audit_id":"`+e.AuditID.String())
		require.Contains(t, w.get("/admin/v1/audit?action="+e.Action+"&operator=bob").text, `"data":[]`)
	}
}

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
	for _, path := range nowhere {
		require.Equal(t, http.StatusNotFound, w.get(path).StatusCode, path)
		require.Equal(t, http.StatusUnauthorized, w.send("", "GET", path, "").StatusCode, path)
	}
	require.Equal(t, http.StatusNotFound, w.get("/admin/v1/jobs/x").StatusCode)
	require.Equal(t, http.StatusNotFound, w.get("/admin/v1/jobs/00000000-0000-0000-0000-000000000000").StatusCode)
	require.Equal(t, http.StatusOK, w.send(readToken, "HEAD", "/admin/v1/jobs", "").StatusCode)
	require.Equal(t, http.StatusOK, w.get("/admin/v1/jobs/"+strings.ReplaceAll(anID.String(), "-", "%2D")).StatusCode)
}

// If the audit log cannot store the entry, the change is not made. A failed change is logged with its status.
func TestAuditComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	accept := repotest.Refuse(t, w.URL(), "INSERT ON audit")
	require.GreaterOrEqual(t, w.post("/admin/v1/clients", "").StatusCode, 500)
	require.Equal(t, 3, repotest.Count(t, w.URL(), "clients"))
	accept()
	r := w.post("/admin/v1/jobs", ofClient("job", `{"type":"EXECUTE","nope":1}`))
	require.Equal(t, http.StatusBadRequest, r.StatusCode)
	require.Contains(t, r.text, `"pointer":"/job/nope"`)
	e := w.audit()[0]
	require.Equal(t, http.StatusBadRequest, *e.Status)
	require.Nil(t, e.TargetID)
}

// After a panic it is unknown whether the change was made, so the audit entry gets no status.
func TestPanicsLeaveTheEntryOpen(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, backend.New(t, func(s *backend.Service) { s.Targets = func(string) string { panic("as a broken use case") } }))
	r := w.post("/admin/v1/jobs", ofClient("job", `{"type":"EXECUTE","callback":"https://example.com"}`))
	require.Equal(t, http.StatusInternalServerError, r.StatusCode)
	require.NotContains(t, r.text, "broken")
	require.Len(t, w.audit(), 1)
	require.Nil(t, w.audit()[0].Status)
}

// With override, an operator can retry a job that is not retryable, and the audit log shows the override.
func TestOverride(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/admin/v1/jobs/" + backend.FailedJob.String() + "/retry"
	w.Exec(`UPDATE jobs SET failure_retryable = false WHERE state = 'FAILED'`)
	for i, body := range []string{"", `{}`, `{"override":false}`, `{"override":true}`} {
		require.Equal(t, i == 3, w.post(path, body).StatusCode == http.StatusAccepted, body)
	}
	entries := w.audit()
	require.JSONEq(t, `{"override":true}`, string(entries[0].Detail))
	require.JSONEq(t, `{"override":false}`, string(entries[3].Detail))
	require.Equal(t, http.StatusBadRequest, w.post(path, `{"overide":true}`).StatusCode)
	require.Len(t, w.audit(), 4)
}

// The filter of a bulk operation has the parameters of the list of jobs. A dry run changes nothing.
func TestBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := backend.ClientA.String()
	filter := `{"state":"FAILED","kind":"RETRY_ON_FAIL","type":"DEFERRED","client_id":"` + id + `","correlation_id":"corr-1",` +
		`"failure_code":"RFA_DEPENDENCY_TIMEOUT","failure_detail":"It failed.","from":"2020-01-01T03:04:05.000006Z",` +
		`"to":"2026-01-02T03:04:05.000006Z"}`
	w.Exec(`UPDATE jobs SET max_attempts = 2, created_at = '2025-01-31 12:00Z' WHERE state = 'FAILED'`)
	asked := `{"action":"retry","filter":` + filter + `,"dry_run":true,"override":false,"rate":7}`
	r := w.post("/admin/v1/bulk", asked).requireStatus(t, http.StatusOK)
	require.Contains(t, r.text, `"sample":[{"job_id":"`+backend.FailedJob.String()+`"`)
	require.Contains(t, r.text, `"count":1,"changes":0,"left":[{"result":"FAILED","code":"RFA_JOB_CONFLICT","detail":"The job has used all`)
	forced := strings.Replace(asked, `"override":false`, `"override":true`, 1)
	require.Contains(t, w.post("/admin/v1/bulk", forced).text, `"changes":1,"left":[]`)
	require.Equal(t, 2, repotest.Count(t, w.URL(), "bulk_operations"))
	require.JSONEq(t, asked, string(w.audit()[1].Detail))
	for _, body := range []string{`{"action":"retry","filter":{}}`, `{"action":"cancel","filter":{"all":true},"override":true}`} {
		require.Equal(t, http.StatusBadRequest, w.post("/admin/v1/bulk", body).StatusCode, body)
	}
	bulk := "/admin/v1/bulk/" + backend.Bulk.String()
	require.Contains(t, w.get(bulk).text, `"left":[{"result":"FAILED"`)
	require.JSONEq(t, `{"data":[{"type":"webhooks","id":"`+backend.Webhook.String()+`","client_id":"`+id+`"}]}`,
		w.get("/admin/v1/find?id="+backend.Webhook.String()).text)
	first := w.get(bulk + "/items?result=FAILED&limit=1")
	second := w.get(bulk + "/items?result=FAILED&cursor=" + first.cursor(t))
	require.NotContains(t, second.text, `"data":[]`)
	require.NotContains(t, second.text, `"next_cursor":"`)
}

func TestFiltersReachStorage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE jobs SET created_at = '2023-07-01 00:00Z' WHERE state = 'QUEUED'`)
	a, none := backend.ClientA.String(), "01890000-0000-7000-8000-0000000000ff"
	for target, n := range map[string]int{
		"jobs": 4, "jobs?client_id=" + a: 3, "jobs?batch_id=" + backend.Batch.String(): 1, "jobs?batch_id=" + none: 0, "jobs?state=FAILED": 1,
		"jobs?type=DEFERRED": 1, "jobs?kind=RETRY_ON_FAIL": 1, "jobs?correlation_id=corr-1": 1, "jobs?correlation_id=a%20b": 0,
		"jobs?state=FAILED&failure_code=RFA_DEPENDENCY_TIMEOUT": 1, "jobs?state=FAILED&failure_code=RFA_INTERNAL": 0,
		"jobs?from=2020-01-01T00:00:00Z": 4, "jobs?from=2031-01-01T00:00:00Z": 0, "jobs?to=2024-01-01T00:00:00Z": 2,
		"deliveries": 4, "deliveries?client_id=" + none: 0, "deliveries?webhook_id=" + backend.Webhook.String(): 2,
		"deliveries?job_id=" + anID.String() + "&state=FAILED": 2, "deliveries?state=FAILED&event_name=job.running": 1,
		"webhooks?enabled=false": 0, "webhooks?enabled=true": 1, "clients?named=true": 1, "clients?named=false": 2,
	} {
		var list struct{ Data []any }
		w.get("/admin/v1/"+target).json(t, &list)
		require.Len(t, list.Data, n, target)
	}
}

// A cursor is only valid for the same list and filters.
func TestCursors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE jobs SET batch_id = NULL, state = 'FAILED', outcome = 'FAILED', finished_at = updated_at, started_at = run_at,
		failure_code = 'RFA_INTERNAL' WHERE state = 'QUEUED'`)
	for _, list := range []string{"jobs?state=FAILED&", "jobs?", "clients?", "deliveries?", "bulk?", "schedules?", "testbed/sessions?"} {
		seen := map[string]bool{}
		for cursor := ""; ; {
			r := w.get("/admin/v1/" + list + "limit=1" + cursor)
			var p struct {
				Data []any
				Page struct {
					Next *string `json:"next_cursor"`
				}
			}
			r.json(t, &p)
			require.Len(t, p.Data, 1, list)
			text := fmt.Sprint(p.Data)
			require.False(t, seen[text], list)
			seen[text] = true
			if p.Page.Next == nil {
				break
			}
			cursor = "&cursor=" + *p.Page.Next
		}
		require.Greater(t, len(seen), 1, list)
	}
	cursor := w.get("/admin/v1/jobs?state=FAILED&limit=1").cursor(t)
	for _, other := range []string{"jobs?cursor=", "jobs?state=SUCCEEDED&cursor=", "webhooks?cursor="} {
		require.Equal(t, http.StatusBadRequest, w.get("/admin/v1/"+other+cursor).StatusCode, other)
	}
}

// Values of masked members are hidden at any depth. Everything else stays as sent.
func TestMask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE jobs SET params = $1`, `{"user":"ann","Password":"x","big":12345678901234567890,"list":[{"my_secret":{"a":[1]}, "b": 1.0}],
		"a":1,"a":2,"<b>":"</script>"}`)
	w.Exec(`UPDATE events SET data = $1`, `{"data":{"db_password":1}}`)
	r := w.get("/admin/v1/jobs/" + anID.String())
	require.Contains(t, r.text, `"params":{"user":"ann","Password":"***","big":12345678901234567890,"list":[{"my_secret":"***","b":1.0}],`+
		`"a":1,"a":2,"\u003cb\u003e":"\u003c/script\u003e"}`)
	require.Contains(t, r.text, `"data":{"data":{"db_password":"***"}}`)
}

func TestAnswersContainNoClientSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, 3, raw(reflect.TypeFor[admin.Job]()), "mask.go must hide new raw members")
	require.Equal(t, 1, raw(reflect.TypeFor[admin.DeliveryAttempt]()), "mask.go must hide new raw members")
	const planted = `{"my_secret":"planted","emit":{"data":{"db_password":"planted"}},"behavior":[{"PASSWORD":"planted"}]}`
	const url = "https://receiver.example/hook?a=b&my%5fsecret=planted&c=d#x_secret=planted"
	w.Exec(`UPDATE jobs SET params = $1::text::json, definition = $1::text::jsonb, callback = $2`, planted, url)
	w.Exec(`UPDATE events SET data = $1`, planted)
	w.Exec(`UPDATE webhooks SET url = $1`, url)
	w.Exec(`UPDATE deliveries SET url = $1 WHERE url IS NOT NULL`, url)
	id := backend.Callback.String()
	for _, body := range []string{planted, `{"my_secret":"planted","cut":"of`, "\ufeff{\"my_secret\":\"planted\"}", "my_secret=planted&a=b",
		"m\x00y\x00_\x00s\x00e\x00c\x00r\x00e\x00t\x00=planted", "{\"my_secret\":\"planted\"}\n{}\n", "data: {\"MY_SECRET\": \"planted\"}\n\n"} {
		w.Exec(`UPDATE delivery_attempts SET status = 200, error = NULL, response_body = $1, response_header = $2`, []byte(body),
			`{"X-My-Secret":["planted"],"Date":["today"],"Location":["/x?the_secret=planted&y=z"]}`)
		for _, path := range []string{"jobs/" + anID.String(), "deliveries/" + id, "deliveries", "webhooks",
			"webhooks/" + backend.Webhook.String()} {
			shown := w.get("/admin/v1/" + path).text
			require.Contains(t, shown, `=***`, path)
			require.NotContains(t, shown, "planted", path)
			require.Contains(t, shown, "a=b", path)
		}
	}
	require.NotContains(t, w.post("/admin/v1/deliveries/"+id+"/redeliver", "").text, "planted")
	w.Exec(`UPDATE delivery_attempts SET response_body = $1`, []byte("<p>Not today</p>"))
	require.Contains(t, w.get("/admin/v1/deliveries/"+id).text, "Not today")
}

func raw(of reflect.Type) (n int) {
	switch {
	case of == reflect.TypeFor[json.RawMessage]():
		return 1
	case of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice:
		return raw(of.Elem())
	case of.Kind() == reflect.Struct:
		for i := range of.NumField() {
			n += raw(of.Field(i).Type)
		}
	}
	return n
}

// A job links to its trace if TraceURL is set. A result is a download, never shown as a page of this origin.
func TestLinksOfAJob(t *testing.T) {
	t.Parallel()
	trace, address := "4bf92f3577b34da6a3ce929d0e0e4736", "https://traces.example.com/"+operator.TraceIDMark+"?of=forgerun"
	path := "/admin/v1/jobs/" + anID.String()
	none := newWorld(t)
	with := newWorldOn(t, none.Service, func(c *operator.Config, _ *operator.Deps) { c.TraceURL = address })
	require.Contains(t, with.get(path).text, `"trace_url":null`)
	none.Exec(`UPDATE jobs SET traceparent = $1`, "00-"+trace+"-00f067aa0ba902b7-01")
	require.Contains(t, none.get(path).text, `"trace_url":null`)
	require.Contains(t, with.get(path).text, `"trace_url":"https://traces.example.com/`+trace+`?of=forgerun"`)
	r := none.get(path + "/result")
	require.Equal(t, `attachment; filename="`+anID.String()+`"`, r.Header.Get("Content-Disposition"))
	require.Equal(t, "application/octet-stream", r.Header.Get("Content-Type"), "independent of the media type of the result")
	require.Equal(t, "0123456789", r.text)
}

func TestSubmitForClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 2 {
		r := w.post("/admin/v1/jobs", operation{"POST", "/admin/v1/jobs"}.body(), "Idempotency-Key", "k1")
		require.Equal(t, http.StatusAccepted, r.StatusCode, r.text)
	}
	require.Equal(t, []string{backend.ClientA.String() + " SUCCESS_FAST en"}, repotest.All[string](t, w.URL(),
		`SELECT concat_ws(' ', client_id, work_kind, language) FROM jobs WHERE created_at BETWEEN '2026-01-01' AND '2029-01-01'`))
}
