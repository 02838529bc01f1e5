package commands

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// testbedWith is a service that finds a client to be so.
func testbedWith(t *testing.T, conclusion string) (url string, ended *atomic.Bool) {
	t.Helper()
	const id = "0190a1b2-c3d4-7000-8000-0000000000e1"
	ended = &atomic.Bool{}
	session := func(more string) string {
		return `{"session_id":"` + id + `","seed":1,"rules":["backoff"],"created_at":"2030-01-31T12:00:00Z",` +
			`"ended_at":null,"exchanges":` + map[bool]string{true: "0", false: "2"}[conclusion == "nothing"] + more + `}`
	}
	answers := map[string]struct {
		status int
		body   string
	}{
		"POST /v1/clients":                         {201, `{"client_id":"` + id + `"}`},
		"POST /v1/clients/" + id + "/keys":         {201, `{"api_key":"frk_secret","key_id":"k","scope":"all"}`},
		"POST /v1/testbed/sessions":                {201, session("")},
		"POST /v1/testbed/sessions/" + id + "/end": {200, session("")},
		"GET /v1/testbed/sessions/" + id + "/verdict": {200, session(fmt.Sprintf(`,"verdict":%q,"counts":{"held":0,"broken":1,"not_exercised":1},
			"faults":[{"fault":"stream cut","of":"event streams","requests":0,"times":0}],
			"results":[{"rule":"backoff","title":"The client waits.","status":"broken","times":1,"failures":1,
				"evidence":[],"see":"https://example.com"}]`,
			conclusion))},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			a.status, a.body = 404, `{}`
		}
		if strings.HasSuffix(r.URL.Path, "/end") {
			ended.Store(true)
		}
		if form := r.Header.Get("Accept"); strings.HasSuffix(r.URL.Path, "/verdict") && form != "application/json" {
			a.body = "as " + form
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(server.Close)
	return server.URL, ended
}

// The command is told where the service is, its output passes, and the exit code says what came of it.
func TestVerdict(t *testing.T) {
	t.Parallel()
	const tell = `echo "at $FORGERUN_URL with $FORGERUN_API_KEY"`
	for name, test := range map[string]struct {
		conclusion string
		flags      []string
		command    string
		code       int
	}{
		"right":              {"right", nil, tell, exitOK},
		"wrong":              {"wrong", nil, tell, exitDifferent},
		"wrong and failed":   {"wrong", nil, tell + "; exit 3", exitDifferent},
		"failed":             {"right", nil, tell + "; exit 3", exitUnusable},
		"incomplete":         {"incomplete", nil, tell, exitOK},
		"required to be all": {"incomplete", []string{"--complete"}, tell, exitDifferent},
		"could be better":    {"could_be_better", nil, tell, exitOK},
		"should be better":   {"could_be_better", []string{"--strict"}, tell, exitDifferent},
		"nothing was asked":  {"nothing", nil, tell, exitUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ended := testbedWith(t, test.conclusion)
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			args := append([]string{"--url", url, "--junit", file("v.xml"), "--html", file("v.html"), "--json", file("v.json")}, test.flags...)
			code, stdout, stderr := simulate(t, append(append([]string{"verdict"}, args...), "--", "sh", "-c", test.command)...)
			require.Equal(t, test.code, code, stdout+stderr)
			require.Contains(t, stdout, "at "+url+" with frk_secret\n")
			require.Contains(t, stdout, "The client waits.")
			require.True(t, ended.Load())
			for name, want := range map[string]string{
				"v.xml": "as application/xml", "v.html": "as text/html",
				"v.json": `"verdict":"` + test.conclusion,
			} {
				text, err := os.ReadFile(file(name))
				require.NoError(t, err)
				require.Contains(t, string(text), want)
			}
		})
	}
}

// A service without a test bed is told before anything runs.
func TestVerdictWithoutATestBed(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	code, _, stderr := simulate(t, "verdict", "--url", serve(t, 404, "text/plain", ""), "--", "touch", ran)
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "simulator: ")
	require.NoFileExists(t, ran)
}

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

// Whatever the client sent, the terminal gets text.
func TestVerdictAsText(t *testing.T) {
	t.Parallel()
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	v := client.Verdict{
		Session: client.Session{Profile: "flaky-network", Seed: 7, Exchanges: 12, CreatedAt: began, EndedAt: began.Add(time.Minute)},
		Verdict: "wrong", Counts: map[string]int{"held": 1, "broken": 1, "not_exercised": 1},
		Faults: []client.FaultCount{
			{Fault: "429", Of: "submissions", Requests: 9, Times: 2}, {Fault: hostile, Of: "event streams", Requests: 0, Times: 0},
		},
		Results: []client.RuleResult{
			{Rule: "backoff", Title: "The client waits.", Status: "held", Times: 3, See: "https://example.com/a"},
			{Rule: "same-body", Title: "The same body.", Status: "broken", Times: 3, Failures: 2, See: "https://example.com/b",
				Evidence: []client.Evidence{{
					Found: "Another.", Expected: "The same.", Times: 2, Before: &client.Moment{At: began, Request: "POST /first", Answer: "202"},
					Request: &client.Moment{At: began, Request: "POST " + hostile, Headers: []string{hostile}, Answer: hostile, Fault: hostile},
				}}},
			{Rule: "time-outs", Title: "It gives up.", Status: "not_exercised", See: "https://example.com/c", Exercise: "A delay."},
		},
	}
	var text bytes.Buffer
	require.NoError(t, writeVerdict(&text, term.Style{}, &v))
	require.Contains(t, text.String(), "BROKEN  same-body")
	require.Contains(t, text.String(), "(2 of 3 times)")
	require.Regexp(t, `(?s)POST /first.*POST <script.*Another. \(2 times\)`, text.String())
	require.Regexp(t, `(?s)   -    time-outs .*  ok    backoff .*BROKEN  same-body`, text.String(), "what matters most is the end")
	require.Contains(t, text.String(), "The client is wrong: 1 rules kept, 1 broken, 1 not exercised.")
	require.Contains(t, text.String(), "  faults of 9 submissions:\n        2  429\n  faults of 0 event streams:\n     none  ")
	require.Contains(t, text.String(), "It has not met 1 of the faults")
	require.NotContains(t, text.String(), "\x1b")
}

// With --target the command meets a proxy before its server, at the address that it is told, and nothing else is started.
func TestVerdictOfAnotherAPI(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Operation-Location", "/operations/1")
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = w.Write([]byte(`{"status": "Succeeded"}`))
	}))
	defer target.Close()
	ask := `test "$API_URL" = "$FORGERUN_URL" && curl -s -X POST "$API_URL/things" -d 1 && curl -s "$API_URL/operations/1"`
	html := filepath.Join(t.TempDir(), "v.html")
	code, stdout, stderr := simulate(t, "verdict", "--target", target.URL, "--url-env", "API_URL", "--rules", "outcome-learned,no-key-in-url",
		"--html", html, "--", "sh", "-c", ask)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "2 rules kept")
	require.FileExists(t, html)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	code, stdout, stderr = simulate(t, "verdict", "--target", target.URL, "--tls", authority, "--", "sh", "-c",
		`curl -sf --cacert "`+authority+`" "$FORGERUN_URL" && ! curl -sf "$FORGERUN_URL"`)
	require.Equal(t, exitOK, code, stdout+stderr)

	code, _, stderr = simulate(t, "verdict", "--target", target.URL, "--", "true")
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "nothing was asked of "+target.URL)
	code, _, stderr = simulate(t, "verdict", "--target", "localhost", "--", "true")
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "http://127.0.0.1:3000")
	code, _, stderr = simulate(t, "verdict", "--target", target.URL+"/v1", "--", "true")
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "without a path")
	code, _, stderr = simulate(t, "proxy", "--target", target.URL, "--api", "acme")
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "stripe")
}
