package main

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// as sends a request, which must succeed, and gives its answer and its id.
func (u *user) as(api *proc, method, path, body string) (a answer, request string) {
	u.s.t.Helper()
	request = uuid.NewString()
	a = u.call(api, method, path, body, "X-Request-Id", request)
	require.NoError(u.s.t, a.err)
	require.Less(u.s.t, a.status, http.StatusBadRequest, a.body)
	return a, request
}

// requireLine waits for the line of a change, which must be of the request that
// asked for it.
func (p *proc) requireLine(message, action, subject, request string) {
	p.t.Helper()
	line := p.logged(message, `"action":"`+action+`"`, subject)
	require.Equal(p.t, request, line["request_id"], "%s %s: %v", message, action, line)
}

func TestLinesOfAnActionHaveItsRequestID(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	worker := s.startWorker()
	u := s.newUser(api)

	first, submitted := u.as(api, "POST", "/v1/jobs", execute("RETRY_ON_FAIL"))
	id := first.text("job_id")
	s.await("FAILED", id)
	_, retried := u.as(api, "POST", "/v1/jobs/"+id+"/retry", "")
	require.NotEqual(t, submitted, retried)
	s.await("SUCCEEDED", id)
	api.requireLine("job transition", "submit", id, submitted)
	api.requireLine("job transition", "retry", id, retried)
	worker.requireLine("job transition", "finish", id, submitted)

	const later = `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`
	waiting, _ := u.as(api, "POST", "/v1/jobs", later)
	_, canceled := u.as(api, "POST", "/v1/jobs/"+waiting.text("job_id")+"/cancel", "")
	api.requireLine("job transition", "cancel", waiting.text("job_id"), canceled)

	batch, together := u.as(api, "POST", "/v1/jobs/batch", `{"jobs":[`+later+`]}`)
	item := s.text(`SELECT job_id::text FROM jobs WHERE batch_id = $1`, batch.text("batch_id"))
	api.requireLine("job transition", "submit", item, together)
	_, canceled = u.as(api, "POST", "/v1/batches/"+batch.text("batch_id")+"/cancel", "")
	api.requireLine("job transition", "cancel", item, canceled)
	_, removed := u.as(api, "DELETE", "/v1/jobs/"+item, "")
	api.requireLine("request", "delete", item, removed)

	hook, registered := u.as(api, "POST", "/v1/webhooks", `{"url":"http://127.0.0.1:10/x","events":["job.*"]}`)
	webhook := hook.text("webhook_id")
	s.secret(hook.text("secret"))
	_, changed := u.as(api, "PATCH", "/v1/webhooks/"+webhook, `{"description":"mine"}`)
	rotation, rotated := u.as(api, "POST", "/v1/webhooks/"+webhook+"/rotate-secret", "")
	s.secret(rotation.text("secret"))
	_, deleted := u.as(api, "DELETE", "/v1/webhooks/"+webhook, "")
	api.requireLine("webhook registered", "register_webhook", webhook, registered)
	api.requireLine("webhook changed", "update_webhook", webhook, changed)
	api.requireLine("webhook secret rotated", "rotate_webhook_secret", webhook, rotated)
	api.requireLine("webhook deleted", "delete_webhook", webhook, deleted)
	s.checkInvariants()
}
