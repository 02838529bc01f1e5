package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/repotest"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (w *world) session() *world {
	w.t.Helper()
	w.Exec(`INSERT INTO testbed_sessions (client_id, session_id, profile, seed, rules, created_at)
		VALUES ($1, '01890000-0000-7000-8000-0000000000f9', '', 1, '{retry-after}', now())`, backend.ClientA.String())
	return w
}

func (w *world) recorded() (x verdict.Exchange) {
	w.t.Helper()
	for _, text := range repotest.All[string](w.t, w.URL(), `SELECT exchange::text FROM testbed_exchanges ORDER BY number DESC LIMIT 1`) {
		require.NoError(w.t, json.Unmarshal([]byte(text), &x))
	}
	return x
}

func TestFaultsInsteadOfTheWork(t *testing.T) {
	t.Parallel()
	two, s := 2, backend.New(t)
	for _, test := range []struct {
		effect     fault.Effect
		status     int
		text       string
		name, want string // a header of the response, and its value
	}{
		{fault.Effect{Status: 503}, 503, string(job.CodeStorageUnavailable), "Content-Type", "application/problem+json"},
		{fault.Effect{Code: string(job.CodeRateLimited), RetryAfter: &two}, 429, string(job.CodeRateLimited), "Retry-After", "2"},
		{fault.Effect{Status: 401}, 401, string(job.CodeInvalidCredentials), "Content-Type", "application/problem+json"},
		{fault.Effect{Status: 410}, 410, string(job.CodeJobGone), "Content-Type", "application/problem+json"},
		{fault.Effect{HTML: true}, 502, "<", "Content-Type", "text/html"},
		{fault.Effect{Moved: 308}, 308, "", "Location", "/v1/jobs"},
	} {
		w := newWorldOn(t, s)
		w.madeUp = true
		before := repotest.Count(t, w.URL(), "jobs")
		of := testbed.Scope{Client: backend.ClientA}
		_, err := w.Testbed.ReplaceFaults(t.Context(), of, 1, []fault.Rule{{Match: fault.Match{Operation: "submitJob"}, Effect: test.effect}}, "")
		require.NoError(t, err)
		a := w.submit("").requireStatus(t, test.status)
		require.Contains(t, a.text, test.text)
		require.Contains(t, a.Header.Get(test.name), test.want)
		require.Equal(t, before, repotest.Count(t, w.URL(), "jobs"), "the work was not done")
		require.NotContains(t, w.log.String(), `"request failed"`, "a fault is not logged as a failure")
	}
}

// An invalid fault header is refused. Without a test bed, neither the paths nor the headers exist.
func TestFaultHeader(t *testing.T) {
	t.Parallel()
	a := newWorld(t).send("GET", "/v1/jobs", "", headerFault, `{"status":1}`)
	require.Equal(t, 400, a.StatusCode, a.text)
	require.Contains(t, a.text, headerFault)

	plain := newWorld(t, func(_ *Config, d *Deps) { d.Testbed = nil })
	require.Equal(t, 200, plain.send("GET", "/v1/jobs", "", headerFault, `{"status":503}`, headerSession, "tést").StatusCode)
	a = plain.send("GET", faultsPath, "").requireStatus(t, 404)
	require.Contains(t, a.text, "RFA_REQUEST_NOT_FOUND")
}

func TestSessionHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const id = "0190a5f0-1111-7111-8111-111111111111"
	for _, test := range []struct {
		method, path, body, label string
		status, exchanges         int // exchanges: number of recorded exchanges
		requests                  int // number of requests that assigned jobs to the session
	}{
		{"GET", "/v1/jobs", "", "-", 200, 0, 0}, {"GET", "/v1/jobs", "", "a test", 200, 1, 0},
		{"POST", "/v1/jobs", leastBody, "a test", 202, 1, 1}, {"GET", "/v1/jobs?limit=none", "", "a test", 400, 1, 0},
		{"GET", "/v1/jobs", "", strings.Repeat("l", 201), 400, 0, 0}, {"GET", "/v1/jobs", "", "tést", 400, 0, 0},
		{"GET", faultsPath, "", "a test", 200, 0, 0},
		{"POST", "/v1/testbed/fixtures", `{"jobs":[{"state":"scheduled"}]}`, "a test", 201, 0, 1},
	} {
		w.Seed()
		a := w.send(test.method, test.path, test.body, "X-Request-Id", id, headerSession, test.label).requireStatus(t, test.status)
		require.Equal(t, []int{test.exchanges, test.requests}, []int{repotest.Count(t, w.URL(), "testbed_exchanges"),
			repotest.Count(t, w.URL(), "testbed_requests WHERE request_id = '"+id+"'")}, test)
		if test.status == 400 && test.path == "/v1/jobs" {
			require.Contains(t, a.text, headerSession)
		}
	}
}

// Fixtures that are not made in time get 503, even if storage hangs.
func TestFixturesAreMadeInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Testbed.Wait = 100 * time.Millisecond
	unlock := repotest.Begin(t, w.URL(), "LOCK TABLE jobs")
	a := w.send("POST", "/v1/testbed/fixtures", `{"jobs":[{"state":"scheduled"}]}`).requireStatus(t, 503)
	require.Contains(t, a.text, "RFA_EXEC_WORKER_UNAVAILABLE")
	unlock()
}

// The access log must not read the streamed body.
func TestJournalsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 { // one more than the limit
		a := w.send("GET", sessionsPath+"/"+backend.Session.String()+"/journal", "").requireStatus(t, 200)
		require.Equal(t, "application/x-ndjson", a.Header.Get("Content-Type"))
		require.Equal(t, []string{"chunked"}, a.TransferEncoding)
		require.Equal(t, 404, w.send("GET", sessionsPath+"/"+backend.Bulk.String()+"/journal", "").StatusCode)
		require.Equal(t, 406, w.send("GET", sessionsPath+"/"+backend.Session.String()+"/journal", "", "Accept", "text/html").StatusCode)
	}
}

// Only the first key in a URL is looked up. The limit of failed authentications applies.
func TestOneKeyInURLIsLookedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, d *Deps) {
		d.Attempts = authlimit.New(func() time.Time { return now }, telemetry.In(nil))
		c.TrustedProxies = conn.Proxies{netip.MustParsePrefix("0.0.0.0/32")} // Kit.Test sends requests from this address
	})
	refused := 0
	for n := range 110 {
		query := fmt.Sprintf("?a=frk_%d", n) + strings.Repeat("&b=frk_x", 200)
		a := w.send("GET", "/v1/jobs"+query, "", "Authorization", "-", "X-Forwarded-For", "203.0.113.1")
		require.Equal(t, 401, a.StatusCode, "the Authorization header decides")
		guess := w.send("GET", "/v1/jobs", "", "Authorization", "Bearer guess", "X-Forwarded-For", "203.0.113.1")
		if guess.StatusCode == 429 {
			refused++
		}
	}
	require.Positive(t, refused)
}

// A slow response holds a stream slot of the client until the response is sent or the client hangs up. Callers without an API key need no
// slot.
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
		testkit.Eventually(t, "it holds a slot", func() bool { return w.held() == 1 })
		require.Equal(t, 429, w.send("GET", "/v1/jobs", "", headerFault, test.effect).StatusCode)
		require.NoError(t, c.Close())
		testkit.Eventually(t, "the slot is released", func() bool { return w.held() == 0 })
	}
}

func TestKeyRevokedDuringDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, 200, w.send("GET", "/v1/jobs", "", headerFault, `{"delay":"1ms"}`).StatusCode)
	answers := w.waiting("GET", "/v1/jobs", "", headerFault, `{"delay":"1s"}`)
	w.Exec(`UPDATE api_keys SET revoked_at = now()`)
	within(t, answers).requireProblem(t, job.CodeKeyDisabled)
}

// A record has no secrets of the client. A key in a URL is found in any encoding. Requests with a forged key belong to no session.
func TestRecordsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	const hidden = "S3cr3t.Value-42"
	w := newWorld(t).session()
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
		"/v1/jobs?limit=10": false, "/v1/jobs?a=" + goodKey: true, "/v1/jobs?a=%66rk%5F" + goodKey[4:]: true, "/v1/jobs?frk%5FgoodKey00000": true,
		"/v1/jobs/%66rk_" + goodKey[4:]: true,
	} {
		_, x := record(path)
		require.Equal(t, want, x.KeyInURL, path)
	}
	before := repotest.Count(t, w.URL(), "testbed_exchanges")
	require.Equal(t, 401, w.send("GET", "/v1/jobs?key=frk_forged", "", "Authorization", "-").StatusCode)
	require.Equal(t, 401, w.send("GET", "/v1/jobs", "", "Authorization", "Bearer frk_forged").StatusCode)
	require.Equal(t, before, repotest.Count(t, w.URL(), "testbed_exchanges"))
}
