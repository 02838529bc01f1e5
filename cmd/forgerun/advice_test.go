package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProblemsTellWhatToDo(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	u := s.newUser(api)
	nobody := &user{s: s}
	id := u.submit(api, execute("SUCCESS_FAST"))
	for _, test := range []struct {
		who                *user
		method, path, body string
		code               string
		status             int
		want               string
	}{
		{u, "POST", "/v1/jobs", execute("SUCCES_FAST"), "RFA_JOB_VALIDATION_FAILED", 400,
			"/work_kind: There is no such work kind. Did you mean SUCCESS_FAST?"},
		{u, "POST", "/v1/jobs", `{"type":"EXECUT"}`, "RFA_JOB_VALIDATION_FAILED", 400, "Did you mean EXECUTE?"},
		{u, "POST", "/v1/jobs", `{"type":"EXECUTE","workkind":"X","x":1}`, "RFA_REQUEST_MALFORMED", 400, "Did you mean work_kind?"},
		{u, "POST", "/v1/jobs", `{"type":"EXECUTE","workkind":"X","x":1}`, "RFA_REQUEST_MALFORMED", 400, "One more is in violations."},
		{u, "GET", "/v1/jobs?stat=QUEUED", "", "RFA_REQUEST_MALFORMED", 400, "Did you mean state?"},
		{u, "GET", "/v1/jobs?state=queued", "", "RFA_REQUEST_MALFORMED", 400, "Did you mean QUEUED?"},
		{u, "PUT", "/v1/jobs/" + id, "", "RFA_REQUEST_METHOD_NOT_ALLOWED", 405, "It has GET, HEAD, DELETE."},
		{u, "GET", "/v1/jobs/" + id + "/reports", "", "RFA_REQUEST_NOT_FOUND", 404, "Did you mean /v1/jobs/{id}/report?"},
		{nobody, "GET", "/nothing", "", "RFA_REQUEST_NOT_FOUND", 404, api.url + "/docs"},
		{nobody, "GET", "/v1/jobs", "", "RFA_AUTH_INVALID_CREDENTIALS", 401, "Authorization: Bearer frk_..."},
		{&user{s: s, key: "frk_nonsense"}, "GET", "/v1/jobs", "", "RFA_AUTH_INVALID_CREDENTIALS", 401, "Authorization: Bearer frk_..."},
	} {
		a := test.who.call(api, test.method, test.path, test.body)
		a.requireProblem(t, test.status, test.code)
		require.Contains(t, a.text("detail"), test.want)
		if test.status == http.StatusMethodNotAllowed {
			require.Equal(t, "GET, HEAD, DELETE", a.header.Get("Allow"))
		}
	}
	long := u.call(api, "POST", "/v1/jobs", `{"type":"`+strings.Repeat("EXECUTE", 100_000)+`","`+strings.Repeat("x", 100_000)+`":1}`)
	long.requireProblem(t, 400, "RFA_REQUEST_MALFORMED")
	require.Less(t, len(long.body), 4096, "what was sent is not sent back")
}

// The owner of a key learns what its first request made; nobody else does.
func TestIdempotencyConflictNamesWhatWasMade(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	u, other := s.newUser(api), s.newUser(api)
	id := u.submit(api, execute("SUCCESS_FAST"), "Idempotency-Key", "k")
	batch := u.submitBatch(api, batchBody("SUCCESS_FAST"), "Idempotency-Key", "k")

	a := u.trySubmit(api, execute("FAIL_IMMEDIATE"), "Idempotency-Key", "k")
	a.requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	require.Equal(t, id, a.text("job_id"))
	require.Contains(t, a.text("detail"), id)
	require.Nil(t, a.value("batch_id"))
	a = u.call(api, "POST", "/v1/jobs/batch", batchBody("FAIL_IMMEDIATE"), "Idempotency-Key", "k")
	a.requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	require.Equal(t, batch, a.text("batch_id"))
	require.Contains(t, a.text("detail"), batch)
	require.Nil(t, a.value("job_id"))

	require.NotEqual(t, id, other.submit(api, execute("FAIL_IMMEDIATE"), "Idempotency-Key", "k"), "keys are each client's own")
}
