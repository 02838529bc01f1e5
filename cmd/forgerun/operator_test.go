package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
)

const readersToken = "the-readers-own-token"

// operatorClient asks the operator API; each answer is as its document says.
type operatorClient struct {
	s     *stack
	http  *http.Client
	token string
}

func (s *stack) operator(token string) operatorClient {
	documented := apitest.New(s.t, operator.Document())
	return operatorClient{s, &http.Client{Timeout: patience, Transport: documented.Transport(&http.Transport{DisableKeepAlives: true})}, token}
}

func (c operatorClient) call(p *proc, method, path, body string) answer {
	c.s.t.Helper()
	url := "http://" + p.logged("admin listening")["address"].(string) + path
	r, err := http.NewRequestWithContext(c.s.ctx(), method, url, strings.NewReader(body))
	require.NoError(c.s.t, err)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(r)
	require.NoError(c.s.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(c.s.t, err)
	return answer{status: response.StatusCode, header: response.Header, body: string(text)}
}

// ids gives the members of that name in the entries of a list.
func (a answer) ids(t *testing.T, name string) (ids []string) {
	t.Helper()
	var list struct{ Data []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(a.body), &list), a.body)
	for _, entry := range list.Data {
		ids = append(ids, entry[name].(string))
	}
	return ids
}

// passing is what differs from answer to answer: moments of what is alive.
var passing = regexp.MustCompile(`"(time|as_of|heartbeat_at|expires_at)":"[^"]*"`)

// Each process of each role answers operators alike, in the form of the API's document, and nobody else.
func TestOperatorAPI(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	api, sender, u := s.startDelivering()
	worker := s.startWorker()
	receiver := newReceiver(t, nil)
	hook := u.subscribe(api, receiver.url, "*").id
	failed := u.submit(api, execute("FAIL_IMMEDIATE", `"params":{"password":"hunter2","id":12345678901234567890}`))
	done := u.submit(api, execute("SUCCESS_FAST"))
	later := u.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	batch := u.submitBatch(api, `{"jobs":[`+execute("SUCCESS_FAST")+`]}`)
	s.await("FAILED", failed)
	s.await("SUCCEEDED", done)
	eventually(t, "the batch is complete", func() bool { return s.completions(batch) == 1 })
	s.awaitDeliveries()
	ann := s.operator(operatorsToken)
	delivery := ann.call(api, "GET", "/admin/v1/deliveries?job_id="+failed, "").ids(t, "delivery_id")[0]

	for _, path := range []string{
		"jobs", "jobs?state=FAILED", "jobs?state=CREATED", "jobs?state=RUNNING", "jobs/count", "jobs/" + failed, "jobs/" + done, "jobs/" + later,
		"workers", "queues", "failures", "clients", "clients/" + u.id, "webhooks", "webhooks/" + hook, "deliveries", "deliveries/" + delivery,
		"batches", "batches/" + batch, "system", "audit", "catalogue", "openapi.yaml", "jobs/" + done + "/result",
	} {
		path = "/admin/v1/" + path
		want := ann.call(api, "GET", path, "")
		require.Equal(t, http.StatusOK, want.status, "%s %s", path, want.body)
		for _, p := range []*proc{worker, sender} {
			got := s.operator(readersToken).call(p, "GET", path, "")
			require.Equal(t, passing.ReplaceAllString(want.body, ""), passing.ReplaceAllString(got.body, ""), path)
		}
		require.Equal(t, http.StatusUnauthorized, s.operator("").call(worker, "GET", path, "").status, path)
	}
	for _, token := range []string{"a-wrong-token-of-somebody", u.key} {
		require.Equal(t, http.StatusUnauthorized, s.operator(token).call(worker, "GET", "/admin/v1/jobs", "").status)
	}
	detail := ann.call(worker, "GET", "/admin/v1/jobs/"+failed, "").body
	require.Contains(t, detail, `"params":{"password":"***","id":12345678901234567890}`)
	require.Contains(t, detail, `"failure_code":"RFA_`)
	require.Equal(t, []string{failed}, ann.call(worker, "GET", "/admin/v1/jobs?state=FAILED", "").ids(t, "job_id"))
	require.Contains(t, ann.call(worker, "GET", "/admin/v1/jobs/"+later, "").body, `"reason":"SCHEDULED"`)
}

// What operators do takes effect from any process, as if the client had done it, and is told by every process.
func TestOperatorChanges(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	api, sender, u := s.startDelivering()
	receiver := newReceiver(t, nil)
	hook := u.subscribe(api, receiver.url, "*").id
	worker := s.procs[1]
	ann := s.operator(operatorsToken)
	change := func(p *proc, status int, method, path, body string) answer {
		t.Helper()
		refused := s.operator(readersToken).call(p, method, "/admin/v1/"+path, body)
		require.Equal(t, http.StatusForbidden, refused.status, path)
		require.Contains(t, refused.body, "RFA_AUTH_FORBIDDEN")
		a := ann.call(p, method, "/admin/v1/"+path, body)
		require.Equal(t, status, a.status, "%s %s %s", method, path, a.body)
		return a
	}
	submit := func(p *proc, job string) string {
		return change(p, http.StatusAccepted, "POST", "jobs", `{"client_id":"`+u.id+`","job":`+job+`}`).text("job_id")
	}
	never := `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`
	waiting := submit(sender, never)
	require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+waiting, "").status, "it is the client's")
	change(worker, http.StatusOK, "POST", "jobs/"+waiting+"/cancel", "")
	s.await("CANCELED", waiting)
	change(sender, http.StatusConflict, "POST", "jobs/"+waiting+"/retry", "")
	change(sender, http.StatusNoContent, "DELETE", "jobs/"+waiting, "")
	require.Equal(t, http.StatusGone, u.call(api, "GET", "/v1/jobs/"+waiting, "").status)

	retried := submit(worker, execute("RETRY_ON_FAIL"))
	s.await("FAILED", retried)
	change(sender, http.StatusAccepted, "POST", "jobs/"+retried+"/retry", "")
	s.await("SUCCEEDED", retried)
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, retried))

	hopeless := submit(worker, execute("FAIL_IMMEDIATE"))
	s.await("FAILED", hopeless)
	change(sender, http.StatusConflict, "POST", "jobs/"+hopeless+"/retry", `{"override":false}`)
	for range 4 { // one beyond its attempts
		change(sender, http.StatusAccepted, "POST", "jobs/"+hopeless+"/retry", `{"override":true}`)
		s.await("FAILED", hopeless)
	}
	require.Equal(t, 5, s.count(`SELECT max_attempts FROM jobs WHERE job_id = $1 AND attempt = 5`, hopeless))

	change(worker, http.StatusOK, "POST", "webhooks/"+hook+"/disable", "")
	require.Contains(t, u.call(api, "GET", "/v1/webhooks/"+hook, "").body, `"enabled":false`)
	change(worker, http.StatusOK, "POST", "webhooks/"+hook+"/enable", "")
	sent := change(worker, http.StatusAccepted, "POST", "webhooks/"+hook+"/test", "").text("delivery_id")
	receiver.await("the test", func(d received) bool { return d.event() == "webhook.test" })
	s.awaitDeliveries()
	change(api, http.StatusAccepted, "POST", "deliveries/"+sent+"/redeliver", "")
	eventually(t, "it is delivered twice", func() bool {
		return s.count(`SELECT count(*) FROM deliveries WHERE delivery_id = $1 AND state = 'DELIVERED' AND attempts = 2`, sent) == 1
	})

	client := change(worker, http.StatusCreated, "POST", "clients", "").text("client_id")
	made := change(worker, http.StatusCreated, "POST", "clients/"+client+"/keys", "")
	s.secret(made.text("api_key"))
	newcomer := &user{s: s, id: client, key: made.text("api_key")}
	require.Equal(t, http.StatusOK, newcomer.call(api, "GET", "/v1/jobs", "").status)
	change(worker, http.StatusNoContent, "DELETE", "clients/"+client+"/keys/"+made.text("key_id"), "")
	eventually(t, "the key is refused", func() bool { return newcomer.call(api, "GET", "/v1/jobs", "").status == http.StatusForbidden })

	log := s.text(`SELECT string_agg(concat_ws(' ', operator, action, status), ', ' ORDER BY audit_id) FROM audit`)
	require.Equal(t, "ann submit_job 202, ann cancel_job 200, ann retry_job 409, ann delete_job 204, ann submit_job 202, ann retry_job 202, "+
		"ann submit_job 202, ann retry_job 409, ann retry_job 202, ann retry_job 202, ann retry_job 202, ann retry_job 202, "+
		"ann disable_webhook 200, ann enable_webhook 200, ann test_webhook 202, ann redeliver 202, ann create_client 201, ann create_key 201, "+
		"ann revoke_key 204", log)
	require.Len(t, ann.call(sender, "GET", "/admin/v1/audit?operator=ann", "").ids(t, "audit_id"), 19)
	require.Equal(t, []string{client}, ann.call(api, "GET", "/admin/v1/audit?action=create_client", "").ids(t, "target_id"))
}
