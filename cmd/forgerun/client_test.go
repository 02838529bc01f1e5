package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

type user struct {
	s       *stack
	id, key string
	admin   *http.Client // client for the admin listener; nil for users of the public API
}

// If there was no response, err is set.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (s *stack) newUser(api *proc) *user {
	s.t.Helper()
	u := &user{s: s}
	a := u.expect(api, http.StatusCreated, "POST", "/v1/clients", "")
	u.id = a.text("client_id")
	a = u.expect(api, http.StatusCreated, "POST", "/v1/clients/"+u.id+"/keys", "")
	u.key = a.text("api_key")
	s.secret(u.key)
	return u
}

// headers are pairs of name and value.
func (u *user) call(api *proc, method, path, body string, headers ...string) answer {
	address, client := api.url, u.s.http
	if u.admin != nil {
		address, client = api.adminURL(), u.admin
	}
	request, err := http.NewRequest(method, address+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if u.key != "" {
		request.Header.Set("Authorization", "Bearer "+u.key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("X-Request-Id", uuid.NewString())
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	u.s.mu.Lock()
	u.s.sent[request.Header.Get("X-Request-Id")] = true
	u.s.mu.Unlock()
	response, err := client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{err: err}
	}
	a := answer{status: response.StatusCode, header: response.Header, body: string(text)}
	if method == "POST" && path == "/v1/jobs" && a.status == http.StatusAccepted {
		u.s.mu.Lock()
		u.s.accepted[a.text("job_id")] = true
		u.s.mu.Unlock()
	}
	return a
}

func (u *user) expect(api *proc, status int, method, path, body string, headers ...string) answer {
	u.s.t.Helper()
	a := u.call(api, method, path, body, headers...)
	require.NoError(u.s.t, a.err, "%s %s", method, path)
	require.Equal(u.s.t, status, a.status, "%s %s: %s", method, path, a.body)
	return a
}

func (a answer) value(path string) any {
	var at any
	if json.Unmarshal([]byte(a.body), &at) != nil {
		return nil
	}
	for name := range strings.SplitSeq(path, ".") {
		members, _ := at.(map[string]any)
		at = members[name]
	}
	return at
}

func (a answer) text(path string) string {
	text, _ := a.value(path).(string)
	return text
}

func parsed[T any](t *testing.T, text string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func (a answer) requireProblem(t *testing.T, status int, code string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"), a.body)
	require.Equal(t, code, a.text("code"), a.body)
	if code != "RFA_EXEC_IDEMPOTENCY_CONFLICT" { // the body of this problem names the job of the first request
		require.Nil(t, a.value("job_id"), a.body)
	}
	require.Empty(t, a.header.Get("Location"))
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
}

func execute(kind string, members ...string) string {
	return `{` + strings.Join(append([]string{`"type":"EXECUTE","work_kind":"` + kind + `"`}, members...), ",") + `}`
}

func (u *user) trySubmit(api *proc, body string, headers ...string) answer {
	return u.call(api, "POST", "/v1/jobs", body, headers...)
}

func (u *user) submit(api *proc, body string, headers ...string) string {
	u.s.t.Helper()
	a := u.trySubmit(api, body, headers...)
	require.NoError(u.s.t, a.err)
	require.Equal(u.s.t, http.StatusAccepted, a.status, a.body)
	return a.text("job_id")
}

func (u *user) submitAndAwait(api *proc, state, body string, headers ...string) string {
	u.s.t.Helper()
	id := u.submit(api, body, headers...)
	u.s.await(state, id)
	return id
}

func (u *user) submitMany(api *proc, n int, body string) []string {
	u.s.t.Helper()
	const atOnce = 32
	var group errgroup.Group
	group.SetLimit(atOnce)
	answers := make([]answer, n)
	for i := range answers {
		group.Go(func() error {
			answers[i] = u.trySubmit(api, body)
			return nil
		})
	}
	require.NoError(u.s.t, group.Wait())
	ids := make([]string, n)
	for i, a := range answers {
		require.NoError(u.s.t, a.err)
		require.Equal(u.s.t, http.StatusAccepted, a.status, a.body)
		ids[i] = a.text("job_id")
	}
	return ids
}

func (u *user) get(api *proc, id string) answer {
	u.s.t.Helper()
	return u.expect(api, http.StatusOK, "GET", "/v1/jobs/"+id, "")
}

func (u *user) requireLost(api *proc, id, reason string) {
	u.s.t.Helper()
	a := u.get(api, id)
	require.Equal(u.s.t, "FAILED", a.text("state"), a.body)
	require.Equal(u.s.t, "RFA_EXEC_WORKER_UNAVAILABLE", a.text("failure.code"), a.body)
	require.Equal(u.s.t, true, a.value("failure.retryable"), a.body)
	require.True(u.s.t, strings.HasSuffix(a.text("failure.type"), "/problems/"+reason), a.body)
	require.Equal(u.s.t, true, a.value("can_retry"), a.body)
}

func (u *user) retry(api *proc, id string) {
	u.s.t.Helper()
	u.expect(api, http.StatusOK, "POST", "/v1/jobs/"+id+"/retry", "")
}

type load struct {
	stopping chan struct{}
	clients  sync.WaitGroup

	mu      sync.Mutex
	refused []answer
}

// startLoad starts n clients that submit jobs until they are stopped. A refused submission is repeated with its key. Short pauses leave
// processor time for the service.
func (u *user) startLoad(api func() *proc, n int, body func(key string) string) *load {
	l := &load{stopping: make(chan struct{})}
	for range n {
		l.clients.Go(func() {
			for key := uuid.NewString(); ; {
				a := u.trySubmit(api(), body(key))
				switch {
				case a.status == http.StatusAccepted:
					key = uuid.NewString()
				case a.err == nil:
					l.mu.Lock()
					l.refused = append(l.refused, a)
					l.mu.Unlock()
				}
				select {
				case <-l.stopping:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	return l
}

func (l *load) stop() []answer {
	close(l.stopping)
	l.clients.Wait()
	return l.refused
}

func (l *load) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.refused)
}

func (s *stack) acceptedIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.accepted))
}
