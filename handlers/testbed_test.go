package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// fakeTestbed has the rules that it was given last, and the effect that it is set to.
type fakeTestbed struct {
	last   *verdict.Exchange // that was recorded
	effect *fault.Effect
	rules  []fault.Counted
	known  job.ID // of a rule, and of a session

	mu       sync.Mutex
	operated []string
	subjects []string
	entered  []string        // labels, with the requests that make something
	scopes   []testbed.Scope // of requests that were counted or recorded
}

func (f *fakeTestbed) ClockState(context.Context) (testbed.ClockState, error) { return clockOfBed, nil }

func (f *fakeTestbed) MoveClock(_ context.Context, m testbed.ClockMove) (testbed.ClockState, error) {
	return m.From(clockOfBed)
}

var clockOfBed = testbed.ClockState{Now: job.Time(time.Date(2030, time.January, 31, 12, 0, 0, 0, time.UTC)), Rate: 1}

func (f *fakeTestbed) ReplaceFaults(_ context.Context, _ testbed.Scope, seed int64, rules []fault.Rule, _ fault.Profile) (
	[]fault.Counted, error,
) {
	f.rules = nil
	for i, r := range rules {
		f.rules = append(f.rules, fault.Counted{Rule: r, ID: bulkID.String(), Position: i + 1, Seed: seed})
	}
	return f.rules, nil
}

func (f *fakeTestbed) RemoveFaults(context.Context, testbed.Scope) error { f.rules = nil; return nil }

func (f *fakeTestbed) Faults(_ context.Context, of testbed.Scope) ([]fault.Counted, error) {
	if of.Client == clientA && !f.known.IsZero() {
		return append(f.rules, fault.Counted{Rule: fault.Rule{Effect: fault.Effect{Status: 503}}, ID: f.known.String(), Position: 9}), nil
	}
	return f.rules, nil
}

// RemoveFault knows one rule at most, of one client.
func (f *fakeTestbed) RemoveFault(_ context.Context, of testbed.Scope, id job.ID) error {
	if of.Client != clientA || id != f.known {
		return job.Errorf(job.CodeRequestNotFound, "No rule with this id was found.")
	}
	return nil
}

func (f *fakeTestbed) Fault(_ context.Context, of testbed.Scope, operation, subject string) (*fault.Effect, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subjects = append(f.subjects, subject)
	f.operated = append(f.operated, operation)
	f.scopes = append(f.scopes, of)
	return f.effect, nil
}

func (f *fakeTestbed) Reset(context.Context, job.ID) (map[string]int, error) {
	return map[string]int{"jobs": 3}, nil
}

func (f *fakeTestbed) MakeFixtures(_ context.Context, _ job.Request, wanted []testbed.Fixture) (made []testbed.Made, err error) {
	for _, w := range wanted {
		made = append(made, testbed.Made{JobID: job.ID{1}, Fixture: w.State, State: job.Succeeded})
	}
	return made, nil
}

func (f *fakeTestbed) StartSession(_ context.Context, _ job.ID, n verdict.Session) (verdict.Session, error) {
	n.ID, n.CreatedAt, n.Rules = jobID.String(), aSession.CreatedAt, aSession.Rules
	return n, nil
}

// aSession is the one that the fake knows, of client A.
var aSession = verdict.Session{
	ID: jobID.String(), Profile: fault.FlakyNetwork, Seed: 1, Rules: []string{"retry-after"},
	CreatedAt: fault.Time(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)),
}

func (f *fakeTestbed) Sessions(context.Context, job.ID, *string) ([]verdict.Session, error) {
	return []verdict.Session{aSession}, nil
}

func (f *fakeTestbed) Session(_ context.Context, client, id job.ID) (verdict.Session, error) {
	if client != clientA || id != f.known {
		return verdict.Session{}, job.Errorf(job.CodeRequestNotFound, "There is no such session.")
	}
	return aSession, nil
}

func (f *fakeTestbed) EndSession(ctx context.Context, client, id job.ID) (verdict.Session, error) {
	return f.Session(ctx, client, id)
}

func (f *fakeTestbed) Verdict(ctx context.Context, client, id job.ID) (verdict.Verdict, error) {
	n, err := f.Session(ctx, client, id)
	return verdict.Of(&verdict.Record{Session: n}), err
}

// Enter knows the label "full", which cannot begin; all others are of the one session.
func (f *fakeTestbed) Enter(_ context.Context, client job.ID, label, request string) (testbed.Scope, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entered = append(f.entered, label+" "+request)
	if label == "full" {
		return testbed.Scope{}, job.Errorf(job.CodeValidationFailed, "There are too many.")
	}
	return testbed.Scope{Client: client, Session: jobID}, nil
}

func (f *fakeTestbed) Record(_ context.Context, of testbed.Scope, x *verdict.Exchange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scopes, f.last = append(f.scopes, of), x
	return nil
}

// An effect that stands instead of the work is an answer of the contract, and the work is not done.
func TestFaultsInsteadOfTheWork(t *testing.T) {
	t.Parallel()
	two := 2
	for _, test := range []struct {
		effect     fault.Effect
		status     int
		text       string
		name, want string // a header
	}{
		{fault.Effect{Status: 503}, 503, string(job.CodeStorageUnavailable), "Content-Type", "application/problem+json"},
		{fault.Effect{Code: string(job.CodeRateLimited), RetryAfter: &two}, 429, string(job.CodeRateLimited), "Retry-After", "2"},
		{fault.Effect{Status: 401}, 401, string(job.CodeInvalidCredentials), "Content-Type", "application/problem+json"},
		{fault.Effect{Status: 410}, 410, string(job.CodeJobGone), "Content-Type", "application/problem+json"},
		{fault.Effect{HTML: true}, 502, "<", "Content-Type", "text/html"},
		{fault.Effect{Moved: 308}, 308, "", "Location", "/v1/jobs"},
	} {
		w := newWorld(t)
		w.testbed.effect, w.madeUp = &test.effect, true
		w.jobs.err = errors.New("the work was done")
		a := w.submit("")
		require.Equal(t, test.status, a.StatusCode, a.text)
		require.Contains(t, a.text, test.text)
		require.Contains(t, a.Header.Get(test.name), test.want)
		require.Equal(t, []string{"submitJob"}, w.testbed.operated)
		require.NotContains(t, w.log.String(), `"request failed"`, "it is no failure of the service")
	}
}

// A header disturbs its own request, and a service that is no test bed has neither paths nor header.
func TestFaultHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("GET", "/v1/jobs", "", headerFault, `{"status":503,"retry_after":7}`)
	require.Equal(t, 503, a.StatusCode, a.text)
	require.Equal(t, "7", a.Header.Get("Retry-After"))
	require.Empty(t, w.testbed.operated, "rules are not asked")
	a = w.send("GET", "/v1/jobs", "", headerFault, `{"status":1}`)
	require.Equal(t, 400, a.StatusCode, a.text)
	require.Contains(t, a.text, headerFault)

	plain := newWorld(t, func(_ *Config, d *Deps) { d.Testbed = nil })
	require.Equal(t, 200, plain.send("GET", "/v1/jobs", "", headerFault, `{"status":503}`).StatusCode)
	a = plain.send("GET", faultsPath, "")
	require.Equal(t, 404, a.StatusCode, a.text)
	require.Contains(t, a.text, "RFA_REQUEST_NOT_FOUND")
}

// A header names the session of its request, which is asked for once; without it nothing is asked. A wrong one is refused.
func TestSessionHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	labelled, plain := testbed.Scope{Client: clientA, Session: jobID}, testbed.Scope{Client: clientA}
	id := "0190a5f0-1111-7111-8111-111111111111"
	for _, test := range []struct {
		method, path, body, label string
		status                    int
		entered                   []string
		scopes                    []testbed.Scope // as it was counted, and as it was recorded
	}{
		{"GET", "/v1/jobs", "", "", 200, nil, []testbed.Scope{plain, plain}},
		{"GET", "/v1/jobs", "", "a test", 200, []string{"a test "}, []testbed.Scope{labelled, labelled}},
		{"POST", "/v1/jobs", `{"type":"EXECUTE"}`, "a", 202, []string{"a " + id}, []testbed.Scope{labelled, labelled}},
		{"GET", "/v1/jobs?limit=none", "", "a", 400, []string{"a "}, []testbed.Scope{labelled}},
		{"GET", "/v1/jobs", "", "full", 400, []string{"full ", "full "}, []testbed.Scope{plain}},
		{"GET", "/v1/jobs", "", strings.Repeat("l", 201), 400, nil, []testbed.Scope{plain}},
		{"GET", "/v1/jobs", "", "tést", 400, nil, []testbed.Scope{plain}},
		{"GET", faultsPath, "", "a", 200, []string{"a "}, nil},
		{"POST", "/v1/testbed/fixtures", `{"jobs":[{"state":"succeeded"}]}`, "a", 201, []string{"a " + id}, nil},
	} {
		w.testbed.entered, w.testbed.scopes = nil, nil
		headers := []string{"X-Request-Id", id}
		if test.label != "" {
			headers = append(headers, headerSession, test.label)
		}
		a := w.send(test.method, test.path, test.body, headers...)
		require.Equal(t, test.status, a.StatusCode, a.text)
		require.Equal(t, test.entered, w.testbed.entered, test)
		require.Equal(t, test.scopes, w.testbed.scopes, test)
		if test.status == 400 && test.path == "/v1/jobs" {
			require.Contains(t, a.text, headerSession)
		}
	}
	none := newWorld(t, func(_ *Config, d *Deps) { d.Testbed = nil })
	require.Equal(t, 200, none.send("GET", "/v1/jobs", "", headerSession, "tést").StatusCode)
}

// A journal gives its place back when it is sent, or when there is none, and the log does not read it to its end.
func TestJournalsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.testbed.known = jobID
	for range 3 { // one more than are sent at a time
		a := w.send("GET", sessionsPath+"/"+jobID.String()+"/journal", "")
		require.Equal(t, 200, a.StatusCode, a.text)
		require.Equal(t, "application/x-ndjson", a.Header.Get("Content-Type"))
		require.Equal(t, []string{"chunked"}, a.TransferEncoding)
		require.Equal(t, 404, w.send("GET", sessionsPath+"/"+bulkID.String()+"/journal", "").StatusCode)
		require.Equal(t, 406, w.send("GET", sessionsPath+"/"+jobID.String()+"/journal", "", "Accept", "text/html").StatusCode)
	}
}

// Unknown keys in a URL are looked up once, and as any other attempt.
func TestKeysInAURLAreLookedUpOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, d *Deps) {
		d.Attempts = authlimit.New(func() time.Time { return now }, telemetry.In(nil))
		c.TrustedProxies = conn.Proxies{netip.MustParsePrefix("0.0.0.0/32")} // which Test sends from
	})
	var asked []string
	w.clients.seen = func(_ context.Context, bearer string) { asked = append(asked, bearer) }
	for n := range 200 {
		query := fmt.Sprintf("?a=frk_%d", n) + strings.Repeat("&b=frk_x", 200)
		require.Equal(t, 401, w.send("GET", "/v1/jobs"+query, "", "Authorization", "-", "X-Forwarded-For", "203.0.113.1").StatusCode)
	}
	require.Len(t, asked, 100, "as many as may fail of one address")
	require.NotContains(t, asked, "frk_x")
}

// What makes an answer slow takes a slot of its client until the answer is sent or the client hangs up, whatever the method;
// callers without a client have none.
func TestSlowFaultsTakeASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = 1 }).start()
	w.madeUp = true
	require.Equal(t, 201, w.send("POST", "/v1/clients", "", "Authorization", "-", headerFault, `{"delay":"60s"}`).StatusCode, "at once")

	for _, test := range []struct{ method, body, effect string }{
		{"GET", "", `{"delay":"60s"}`}, {"POST", `{"scenario":"SUCCESS_FAST"}`, `{"delay":"60s"}`}, {"GET", "", `{"slow_bytes":1}`},
	} {
		c := w.dial()
		w.write(c, fmt.Sprintf("%s /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n%s: %s\r\n"+
			"Content-Length: %d\r\n\r\n%s", test.method, goodKey, headerFault, test.effect, len(test.body), test.body))
		testkit.Eventually(t, "it takes a place", func() bool { return w.held() == 1 })
		require.Equal(t, 429, w.send("GET", "/v1/jobs", "", headerFault, test.effect).StatusCode)
		require.NoError(t, c.Close())
		testkit.Eventually(t, "it gives its place up", func() bool { return w.held() == 0 })
	}
}

// A key that is revoked during a delay reads nothing after it.
func TestAKeyThatEndsDuringADelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.send("GET", "/v1/jobs", "", headerFault, `{"delay":"1ms"}`)
	require.Equal(t, 200, a.StatusCode, a.text)
	asked := 0
	w.clients.seen = func(context.Context, string) {
		if asked++; asked == 2 {
			w.clients.revoke(goodKey)
		}
	}
	a = w.send("GET", "/v1/jobs", "", headerFault, `{"delay":"1ms"}`)
	require.NotEqual(t, 200, a.StatusCode, a.text)
	require.Equal(t, 2, asked)
}

// A record has no secret of a client, and tells long values apart. A key is found in a URL however it is escaped; what a forged one does is
// in nobody's session.
func TestRecordsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	const hidden = "S3cr3t.Value-42"
	w := newWorld(t)
	record := func(path string, headers ...string) (string, verdict.Exchange) {
		w.send(http.MethodGet, path, "", headers...)
		text, err := json.Marshal(w.recorded())
		require.NoError(t, err)
		return string(text), w.recorded()
	}
	for _, name := range []string{"api_key", "KEY", "token", "sig", "X-Amz-Signature", "code", "password"} {
		text, _ := record("/v1/jobs?"+name+"="+hidden+"&limit=10", "Prefer", "wait=1, token="+hidden, "Accept", "application/json;key="+hidden,
			"X-Correlation-ID", "https://me:"+hidden+"@host.example/?code="+hidden, "If-None-Match", `"Bearer `+hidden+`"`)
		require.NotContains(t, text, hidden)
		require.Contains(t, text, name+"=***")
	}
	long := "/v1/jobs?correlation_id=" + strings.Repeat("x", 3000)
	_, one := record(long + "a")
	_, same := record(long + "a")
	_, other := record(long + "b")
	require.Equal(t, one.Query, same.Query)
	require.NotEqual(t, one.Query, other.Query)
	for path, want := range map[string]bool{
		"/v1/jobs?limit=10": false, "/v1/jobs?a=" + goodKey: true, "/v1/jobs?a=%66rk%5Fgood_key": true, "/v1/jobs?frk%5Fgood": true,
		"/v1/jobs/%66rk_good_key": true,
	} {
		_, x := record(path)
		require.Equal(t, want, x.KeyInURL, path)
	}
	w.testbed.scopes = nil
	require.Equal(t, 401, w.send("GET", "/v1/jobs?key=frk_forged", "", "Authorization", "-").StatusCode)
	require.Equal(t, 401, w.send("GET", "/v1/jobs", "", "Authorization", "Bearer frk_forged").StatusCode)
	require.Empty(t, w.testbed.scopes)
}
