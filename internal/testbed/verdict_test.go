package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// fakeTestbed is a test bed that returns fixed verdicts and records its requests.
type fakeTestbed struct {
	url        string
	conclusion string
	refuse     map[string]int // status of refused requests by method and path

	mu     sync.Mutex
	asked  []string // method, path and body
	began  int      // number of started sessions
	labels []string // labels of the client's other sessions
}

func (f *fakeTestbed) requests(prefix string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, request := range f.asked {
		if strings.HasPrefix(request, prefix) {
			found = append(found, strings.TrimPrefix(request, prefix+" "))
		}
	}
	return found
}

// verdict returns a verdict on two rules: backoff has the fixed result, and time-outs is untested.
func (f *fakeTestbed) verdict(session string) string {
	status, level := "fail", "must"
	switch f.conclusion {
	case "passed", "nothing_judged":
		status = "ok"
	case "passed_with_warnings":
		status, level = "warn", "should"
	}
	return session[:len(session)-1] + fmt.Sprintf(`,"verdict":%q,"why":"So.","counts":{%q:1,"not_tested":1},
		"faults":[{"fault":"stream cut","of":"event streams","requests":0,"times":0}],
		"results":[{"rule":"backoff","title":"The client waits.","level":%q,"status":%q,"times":1,"failures":1,"evidence":[]},
			{"rule":"time-outs","title":"It gives up.","level":"should","status":"not_tested","reason":"no delay","evidence":[]}]}`,
		f.conclusion, status, level, status)
}

func (f *fakeTestbed) session(n int, label string) string {
	exchanges := 2
	if f.conclusion == "nothing_judged" || label == "" && len(f.labels) > 0 {
		exchanges = 0
	}
	return fmt.Sprintf(`{"session_id":"%d%s","label":%q,"seed":1,"created_at":"2030-01-31T12:00:00Z","ended_at":null,"exchanges":%d}`,
		n, label, label, exchanges)
}

func (f *fakeTestbed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	request := r.Method + " " + r.URL.Path
	f.asked = append(f.asked, strings.TrimSpace(request+" "+string(body)))
	status, response := f.refuse[request], `{"detail":"So."}`
	if id, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/testbed/sessions/"), "/"); status == 0 {
		status, response = 200, f.session(f.began, strings.TrimLeft(id, "0123456789"))
		switch {
		case request == "POST /v1/clients":
			status, response = 201, `{"client_id":"0190a1b2-c3d4-7000-8000-0000000000e1"}`
		case strings.HasSuffix(request, "/keys"):
			status, response = 201, `{"api_key":"frk_secret","key_id":"k","scope":"all"}`
		case request == "POST /v1/testbed/sessions":
			f.began++
			status, response = 201, f.session(f.began, "")
		case request == "GET /v1/testbed/sessions":
			sessions := []string{f.session(f.began, ""), f.session(f.began-1, "of another run")}
			for _, label := range f.labels {
				sessions = append([]string{f.session(f.began, label)}, sessions...)
			}
			response = `{"data":[` + strings.Join(sessions, ",") + `],"page":{}}`
		case request == "PUT /v1/testbed/faults":
			response = `{"data":[]}`
		case sub == "verdict":
			if response = f.verdict(response); r.Header.Get("Accept") == "text/html" {
				response = "<title>A page</title>"
			}
		}
	}
	w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: problemType}[status < 400])
	w.WriteHeader(status)
	_, _ = w.Write([]byte(response))
}

func testbedWith(t *testing.T, conclusion string) *fakeTestbed {
	t.Helper()
	f := &fakeTestbed{conclusion: conclusion, refuse: map[string]int{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

const printVariables = `echo "at $FORGERUN_URL with $FORGERUN_API_KEY of $FORGERUN_CLIENT_ID"`

// The command gets the service's address, its output is passed on, and the exit code shows the result.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		conclusion string
		flags      []string
		command    string
		code       int
	}{
		"passed":                      {"passed", nil, printVariables, exitOK},
		"failed":                      {"failed", nil, printVariables, exitDifferent},
		"rule broken, command failed": {"failed", nil, printVariables + "; exit 3", exitDifferent},
		"only the command failed":     {"passed", nil, printVariables + "; exit 3", exitUnusable},
		"complete":                    {"passed", []string{"--complete"}, printVariables, exitDifferent},
		"required and missing":        {"passed", []string{"--require", "backoff,time-outs"}, printVariables, exitDifferent},
		"only reported":               {"failed", []string{"--warn", "backoff"}, printVariables, exitOK},
		"warnings":                    {"passed_with_warnings", nil, printVariables, exitOK},
		"strict":                      {"passed_with_warnings", []string{"--strict"}, printVariables, exitDifferent},
		"nothing judged":              {"nothing_judged", nil, printVariables, exitUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := testbedWith(t, test.conclusion)
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			args := append([]string{
				"verdict", "--url", service.url, "--junit", file("v.xml"), "--html", file("v.html"), "--json-file", file("v.json"),
			}, test.flags...)
			code, stdout, stderr := invoke(t, append(args, "--", "sh", "-c", test.command)...)
			require.Equal(t, test.code, code, stdout+stderr)
			require.Contains(t, stdout, "at "+service.url+" with frk_secret of 0190a1b2-c3d4-7000-8000-0000000000e1\n")
			require.Contains(t, stdout, "The client waits.")
			require.Len(t, service.requests("POST /v1/testbed/sessions/1/end"), 1)
			for name, want := range map[string]string{
				"v.xml":  `<testsuite name="forgerun verdict: none, seed 1" tests="`,
				"v.html": "<title>A page</title>",
				"v.json": `"sessions": [`,
			} {
				text, err := os.ReadFile(file(name))
				require.NoError(t, err)
				require.Contains(t, string(text), want)
			}
		})
	}
}

// With --json, standard output is one JSON document. The command's output goes to standard error.
func TestVerdictAsJSON(t *testing.T) {
	t.Parallel()
	service := testbedWith(t, "passed")
	code, stdout, stderr := invoke(t, "verdict", "--url", service.url, "--json", "--", "sh", "-c", printVariables)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stderr, "at "+service.url)
	var document struct {
		Verdict  string
		Sessions []any
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &document), stdout)
	require.Equal(t, "passed", document.Verdict)
	require.Len(t, document.Sessions, 1)
}

// An unwritable file is reported before anything starts. If writing fails at the end, the verdict is still printed.
func TestVerdictWithoutItsFiles(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--json-file", "--junit", "--html"} {
		service := testbedWith(t, "failed")
		dir := t.TempDir()
		for _, path := range []string{dir, filepath.Join(dir, "missing", "v")} {
			code, stdout, stderr := invoke(t, "verdict", "--url", service.url, flag, path, "--", "sh", "-c", printVariables)
			require.Equal(t, exitUnusable, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, flag+": open "+path+": ")
			require.Empty(t, service.requests("POST"))
		}
		folder := filepath.Join(dir, "gone")
		path, kept := filepath.Join(folder, "v"), filepath.Join(dir, "kept")
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(kept, []byte("as before"), 0o600))
		code, stdout, stderr := invoke(t, "verdict", "--url", service.url, flag, path, "--seeds", "2", "--profile", "overloaded", "--",
			"sh", "-c", `cat "$1"; test ! -d "$0" || rmdir "$0"`, folder, kept)
		require.Equal(t, exitDifferent, code, "the client failed")
		require.Equal(t, 2, strings.Count(stdout, "as before"), "the second run starts: %s", stderr)
		require.Contains(t, stdout, "The client waits.", "the verdict is printed")
		require.Contains(t, stderr, path)
	}
	empty, dir := filepath.Join(t.TempDir(), "new"), t.TempDir()
	code, _, _ := invoke(t, "verdict", "--json-file", empty, "--junit", dir, "--", "true")
	require.Equal(t, exitUnusable, code)
	require.NoFileExists(t, empty, "the check leaves no file behind")
}

// The command runs once per profile and seed, each time as a separate client. One table shows all sessions.
func TestVerdictUnderSeveralProfiles(t *testing.T) {
	t.Parallel()
	service := testbedWith(t, "passed")
	service.labels = []string{"test_a", "test_b"}
	html := filepath.Join(t.TempDir(), "v.html")
	failsInSecondRun := printVariables + `; test "$(echo x >> "$0"; wc -l < "$0")" -ne 2`
	code, stdout, stderr := invoke(t, "verdict", "--url", service.url, "--profiles", "none,overloaded", "--seeds", "2", "--seed", "5",
		"--skip", "backoff", "--html", html, "--", "sh", "-c", failsInSecondRun, filepath.Join(t.TempDir(), "runs"))
	require.Equal(t, exitUnusable, code, stdout+stderr)
	require.Contains(t, stderr, "Run 2 of 3: overloaded, seed 5\n"+
		"Run 3 of 3: overloaded, seed 6\n")
	require.Len(t, service.requests("POST /v1/clients"), 6, "one client and one key per run")
	wanted := service.requests("POST /v1/testbed/sessions")
	for i, want := range []string{`{"seed":5,"rules":[`, `{"profile":"overloaded","seed":5,`, `{"profile":"overloaded","seed":6,`} {
		at := slices.IndexFunc(wanted, func(body string) bool { return strings.HasPrefix(body, want) })
		require.GreaterOrEqual(t, at, 0, "%d %v", i, wanted)
		require.NotContains(t, wanted[at], "backoff")
		require.Contains(t, wanted[at], "lost-answer")
	}
	require.Equal(t, 3, strings.Count(stdout, " test_a "), stdout)
	require.Equal(t, 3, strings.Count(stdout, " test_b "), stdout)
	require.NotContains(t, stdout, "another run")
	index, err := os.ReadFile(html)
	require.NoError(t, err)
	for n := range 6 {
		page := fmt.Sprintf("v-sessions/%d.html", n+1)
		require.Contains(t, string(index), `<a href="`+page+`">`)
		require.FileExists(t, filepath.Join(filepath.Dir(html), page))
	}
	require.Contains(t, stdout, " in 6 sessions\n", "empty sessions without a label do not count")
}

// With --key, the command uses an existing client. --faults replaces its faults.
func TestVerdictOfExistingClient(t *testing.T) {
	t.Parallel()
	service := testbedWith(t, "passed")
	service.refuse["POST /v1/clients"] = 403
	faults := filepath.Join(t.TempDir(), "faults.yaml")
	require.NoError(t, os.WriteFile(faults, []byte("- match: {operation: submitJob, nth: 1}\n  effect: {close: after_commit}\n"), 0o600))
	run := func() (int, string, string) {
		return invoke(t, "verdict", "--url", service.url, "--key", "frk_mine", "--faults", faults, "--", "sh", "-c", printVariables)
	}
	code, stdout, stderr := run()
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, " with frk_mine of \n")
	require.Contains(t, stdout, "faults.yaml, seed 1\n")
	require.Equal(t, []string{`{"seed":1,"rules":[{"match":{"nth":1,"operation":"submitJob"},"effect":{"close":"after_commit"}}]}`},
		service.requests("PUT /v1/testbed/faults"))

	service.refuse["PUT /v1/testbed/faults"] = 400
	code, stdout, stderr = run()
	require.Equal(t, exitUnusable, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "--faults "+faults+": ")
	require.Contains(t, stderr, "So.")
	require.NoError(t, os.WriteFile(faults, []byte("effects: 1"), 0o600))
	_, _, stderr = run()
	require.Contains(t, stderr, "the file must be an array of rules")
	_, _, stderr = invoke(t, "verdict", "--url", service.url, "--", "true")
	require.Contains(t, stderr, "403")
}

// Only the owner can read reports, even if they replace a readable file. With --shared-files, other users can read them too.
func TestReportsArePrivate(t *testing.T) {
	t.Parallel()
	for shared, mode := range map[bool]os.FileMode{false: 0o600, true: 0o644} {
		dir := t.TempDir()
		v := &verdictRun{html: filepath.Join(dir, "v.html"), shared: shared}
		before := filepath.Join(dir, "before.xml")
		require.NoError(t, os.WriteFile(before, []byte("a longer text than the new one"), 0o666))
		require.NoError(t, os.Chmod(before, 0o666))
		require.NoError(t, v.writeFile(before, []byte("new")))
		content, err := os.ReadFile(before)
		require.NoError(t, err)
		require.Equal(t, "new", string(content))
		require.NoError(t, v.writePage(shownSession{page: []byte(`<a href="journal">`), journal: []byte("{}")}, 1))
		require.FileExists(t, filepath.Join(dir, "v.journal.ndjson"))
		require.NoError(t, v.writePage(shownSession{page: []byte("two")}, 2))
		page, err := os.ReadFile(v.pagePath(1))
		require.NoError(t, err)
		require.Equal(t, `<a href="1.journal.ndjson">`, string(page))
		require.NoFileExists(t, filepath.Join(dir, "v.journal.ndjson"))
		for _, path := range []string{before, v.pagePath(1), v.pagePath(2), journalOf(v.pagePath(1)), journalOf(v.pagePath(2))} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), path)
		}
		require.NoError(t, v.writeFile(os.DevNull, []byte("x")))
	}
}

// After an interrupt, the command is told to end, and its requests so far are judged.
func TestInterruptedVerdict(t *testing.T) {
	t.Parallel()
	service := testbedWith(t, "failed")
	ctx, interrupt := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			if _, err := os.Stat(began); err == nil || ctx.Err() != nil {
				break
			}
		}
		interrupt()
	}()
	code, stdout, stderr := invokeIn(ctx, "verdict", "--url", service.url, "--seeds", "9", "--profile", "overloaded", "--",
		"sh", "-c", `touch "$0"; exec sleep 1000`, began)
	require.Equal(t, exitInterrupted, code, stderr)
	require.Contains(t, stdout, "FAILED: 1 error\n  must    backoff: \nSo.\n")
	require.Len(t, service.requests("POST /v1/testbed/sessions/1/end"), 1)
	require.NotContains(t, stderr, "Run 2 of 9")
}

// A started service gets the variables of --set, and --advance moves its clock. The client's key may expire during the run.
func TestVerdictWithStartedService(t *testing.T) {
	t.Parallel()
	program := testkit.Program(t, "forgerun")
	code, stdout, stderr := invoke(t, "verdict", "--forgerun", program, "--set", "FORGERUN_API_KEY_TTL=24h", "--advance", "25h",
		"--profile", "none", "--", "sh", "-c", `while "$0" jobs list; do sleep 0.1; done`, program)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, " WARN   key-renewal")
	for setting, want := range map[string]string{
		"FORGERUN_API_KEY_TTL=soon": `FORGERUN_API_KEY_TTL="soon": must be a duration`,
		"FORGERUN_API_KEY_LIFE=1h":  "unknown variable FORGERUN_API_KEY_LIFE",
	} {
		code, _, stderr = invoke(t, "verdict", "--forgerun", program, "--set", setting, "--", "true")
		require.Equal(t, exitUnusable, code)
		require.Contains(t, stderr, want)
	}
}
