package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

var withTestbed = env{"FORGERUN_TESTBED": "true"}

func (u *user) disturb(api *proc, rules string) {
	u.s.t.Helper()
	u.expect(api, http.StatusOK, "PUT", "/v1/testbed/faults", rules)
}

// sendUnchecked sends a request over a new connection. It does not check the response against the OpenAPI document.
func (u *user) sendUnchecked(api *proc, method, path, body string, headers ...string) (*http.Response, string, error) {
	return u.sendBy(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, api, method, path, body, headers...)
}

func (u *user) sendBy(client *http.Client, api *proc, method, path, body string, headers ...string) (*http.Response, string, error) {
	request, err := http.NewRequestWithContext(u.s.ctx(), method, api.url+path, strings.NewReader(body))
	require.NoError(u.s.t, err)
	request.Header.Set("Authorization", "Bearer "+u.key)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

func TestFaultsOfStreams(t *testing.T) {
	_, api, u := newWorking(t, withTestbed)
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST"))
	const all = 5 // created, queued, assigned, running, succeeded
	for name, test := range map[string]struct {
		effect, lastID string
		events         int
		check          func(text string)
	}{
		"unchanged":     {`{"slow_bytes":100000}`, "", all, nil},
		"closed":        {`{"close":"mid_body"}`, "", 0, func(text string) { require.Contains(t, text, "event: ") }},
		"cut":           {`{"cut_after":2}`, "", 2, nil},
		"half an event": {`{"half_event_after":1}`, "", 1, func(text string) { require.NotContains(t, text[len(text)-3:], "\n\n") }},
		"repeated":      {`{"repeat_after_resume":2}`, "2", all - 2 + 2, nil},
		"comments only": {`{"comments_only":true}`, "", 0, func(text string) { require.Equal(t, all, strings.Count(text, ":\n\n")) }},
	} {
		_, text, err := u.sendUnchecked(api, "GET", "/v1/jobs/"+id+"/events", "", "Accept", "text/event-stream", "Last-Event-ID", test.lastID,
			"ForgeRun-Fault", test.effect)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			require.NoError(t, err, name)
		}
		complete := 0
		for block := range strings.SplitAfterSeq(text, "\n\n") {
			if strings.HasSuffix(block, "\n\n") && strings.Contains(block, "event: ") {
				complete++
			}
		}
		require.Equal(t, test.events, complete, "%s: %s", name, text)
		if test.check != nil {
			test.check(text)
		}
	}

	r, _, err := u.sendUnchecked(api, "GET", "/v1/jobs/"+id+"/events", "", "Accept", "text/event-stream",
		"ForgeRun-Fault", `{"retry_after":7}`)
	require.NoError(t, err)
	require.Equal(t, []string{"text/event-stream", "7"}, []string{r.Header.Get("Content-Type"), r.Header.Get("Retry-After")})
	for effect, events := range map[string]int{`{"stall_after":1}`: 1, `{"close":"stall"}`: 0} {
		stalled := u.stream(api, "/v1/jobs/"+id+"/events", "", "ForgeRun-Fault", effect)
		for range events {
			first, ok := stalled.next()
			require.True(t, ok)
			require.Equal(t, "job-created", first.event)
		}
		select {
		case f, open := <-stalled.frames:
			require.Fail(t, "a stalled stream sends nothing and stays open", "%+v, open: %v", f, open)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// A fault rule with "same" affects one request and its repetitions, in all processes. A request is recognized by its idempotency key, or
// else by its body or URL.
func TestFaultsOfOneRequest(t *testing.T) {
	s := newStack(t, withTestbed)
	first, second := s.startLeader(), s.startAPI()
	u, stranger := s.newUser(first), s.newUser(first)
	u.disturb(first, `[{"match":{"operation":"submitJob","nth":1,"times":2,"same":true},"effect":{"status":500}},
		{"match":{"operation":"submitJob","nth":2,"times":2,"same":true},"effect":{"close":"before"}},
		{"match":{"operation":"getJob","nth":1,"times":2,"same":true},"effect":{"status":404}}]`)
	submit := func(api *proc, body string, headers ...string) int {
		r, _, err := u.sendUnchecked(api, "POST", "/v1/jobs", body, headers...)
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			return 0
		}
		return r.StatusCode
	}
	stranger.submit(first, execute("SUCCESS_FAST"))
	keyless, other, key := execute("SUCCESS_FAST"), execute("SUCCESS_SLOW"), []string{"Idempotency-Key", "one"}
	require.Equal(t, 500, submit(first, keyless))
	require.Equal(t, 0, submit(second, keyless, key...), "another submission")
	require.Equal(t, 202, submit(first, other))
	require.Equal(t, 500, submit(second, keyless))
	require.Equal(t, 0, submit(first, other, key...), "the key identifies it")
	require.Equal(t, 202, submit(first, keyless))
	require.Equal(t, 202, submit(second, keyless, key...))
	ids := []string{u.submit(first, other), u.submit(first, other)}
	for _, want := range []struct{ job, status int }{{0, 404}, {1, 200}, {0, 404}, {0, 200}} {
		r, _, err := u.sendUnchecked(second, "GET", "/v1/jobs/"+ids[want.job], "")
		require.NoError(t, err)
		require.Equal(t, want.status, r.StatusCode)
	}
	kept := u.call(second, "GET", "/v1/testbed/faults", "").value("data").([]any)
	for i, seen := range []int{3, 4, 3} { // `seen` counts all requests until the rule has chosen one, then only repetitions of that request
		rule := kept[i].(map[string]any)
		require.InDelta(t, 2, rule["applied"], 0, "%v", rule)
		require.InDelta(t, seen, rule["seen"], 0, "%v", rule)
	}
	require.Empty(t, stranger.call(first, "GET", "/v1/testbed/faults", "").value("data"))
	path := "/v1/testbed/faults/" + kept[0].(map[string]any)["rule_id"].(string)
	stranger.call(first, "DELETE", path, "").requireProblem(t, 404, "RFA_REQUEST_NOT_FOUND")
}

func (u *user) startSession(api *proc, body string) string {
	u.s.t.Helper()
	a := u.expect(api, http.StatusCreated, "POST", "/v1/testbed/sessions", body)
	return a.text("session_id")
}

func (u *user) verdict(api *proc, session string) (v verdict.Verdict, broken map[string]verdict.Result) {
	u.s.t.Helper()
	path := "/v1/testbed/sessions/" + session
	require.Equal(u.s.t, http.StatusOK, u.call(api, "POST", path+"/end", "").status)
	for form, begins := range map[string]string{"application/xml": "<?xml", "text/html": "<!doctype html>"} {
		a := u.expect(api, http.StatusOK, "GET", path+"/verdict", "", "Accept", form)
		require.True(u.s.t, strings.HasPrefix(a.body, begins), a.body)
		require.True(u.s.t, strings.HasPrefix(a.header.Get("Content-Type"), form))
	}
	u.call(api, "GET", path+"/verdict", "", "Accept", "text/csv").requireProblem(u.s.t, 406, "RFA_REQUEST_NOT_ACCEPTABLE")
	a := u.expect(api, http.StatusOK, "GET", path+"/verdict", "")
	require.NoError(u.s.t, json.Unmarshal([]byte(a.body), &v))
	return v, brokenIn(v)
}

func brokenIn(v verdict.Verdict) map[string]verdict.Result {
	broken := map[string]verdict.Result{}
	for _, r := range v.Results {
		if r.Status.Broken() {
			broken[r.Rule] = r
		}
	}
	return broken
}

func (s *stack) runJudged(t *testing.T, api *proc, command []string, profile fault.Profile, seed int) (
	said string, v verdict.Verdict, broken map[string]verdict.Result, ended error,
) {
	t.Helper()
	u := s.newUser(api)
	body := `{"seed":` + strconv.Itoa(seed) + `}`
	if profile != "" {
		body = `{"profile":"` + string(profile) + `","seed":` + strconv.Itoa(seed) + `}`
	}
	session := u.startSession(api, body)
	said, ended = u.run(t, api.url, command)
	v, broken = u.verdict(api, session)
	return said, v, broken, ended
}

// At most 40 clients run at once, because more would slow each other down.
var clientSlots = make(chan struct{}, 40)

func (u *user) run(t *testing.T, url string, command []string) (said string, ended error) {
	t.Helper()
	clientSlots <- struct{}{}
	defer func() { <-clientSlots }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, command[0], command[1:]...)
	run.Env = append(os.Environ(), "FORGERUN_URL="+url, "FORGERUN_API_KEY="+u.key, "FORGERUN_CLIENT_ID="+u.id)
	run.WaitDelay = time.Second
	out, err := run.CombinedOutput()
	return string(out), err
}

// The Go example, which uses the client library, breaks no rule.
func TestClientLibraryBreaksNoRule(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed)
	program := filepath.Join(t.TempDir(), "client")
	runIn(t, "../../examples", nil, "go", "build", "-o", program, "./go/client")
	said, v, broken, err := s.runJudged(t, api, []string{program}, fault.FlakyNetwork, 1)
	require.NoError(t, err, said)
	require.Empty(t, broken, said)
	require.Positive(t, v.Counts[verdict.OK])
}
