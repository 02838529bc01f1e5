package testbed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/search"
)

// The API ends its jobs at once and ignores idempotency keys.
func endedJobs(t *testing.T) string {
	t.Helper()
	return jobsShown(t, "succeeded")
}

// The API is the same, but its responses to submissions show another state.
func jobsShown(t *testing.T, submitted string) string {
	t.Helper()
	var made atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.Header().Set("Location", fmt.Sprint("/jobs/", made.Add(1)))
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprintf(w, `{"status": %q}`, submitted)
			return
		}
		fmt.Fprint(w, `{"status": "succeeded"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestSearch(t *testing.T) {
	t.Parallel()
	target, out := endedJobs(t), filepath.Join(t.TempDir(), "out")
	run := func(tries string, flags ...string) (code int, stdout string) {
		order := `curl -sf ` + tries + ` "$FORGERUN_URL/jobs" -d '{}'`
		code, stdout, stderr := invoke(t, append(flags, "--target", target, "--", "sh", "-c", order)...)
		return code, stdout + stderr
	}
	code, said := run("", "search", "--first", "--workers", "8", "--out", out)
	require.Equal(t, exitDifferent, code, said)
	require.Contains(t, said, "1 sequence breaks the client. Seed 1: ")
	require.Contains(t, said, "3 of 3 runs. Replay:\n    forgerun verdict --faults "+out+"/")
	page, err := os.ReadFile(filepath.Join(out, "index.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "<h1>1 sequence breaks the client</h1>")
	files, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, said, files[0])

	code, said = run("", "verdict", "--faults", files[0])
	require.NotEqual(t, exitOK, code, said)
	require.NoError(t, os.WriteFile(files[0], []byte("- {match: {operation: submit, nth: 1}, effect: {status: 503}}\n"), 0o600))
	code, said = run("", "search", "--regressions", out)
	require.Equal(t, exitDifferent, code, said)
	require.Contains(t, said, "BROKEN  "+files[0]+"\n          command-fails: ")
	code, said = run("--retry 1 --retry-delay 1", "search", "--regressions", out)
	require.Equal(t, exitOK, code, said)
	require.Contains(t, said, "ok      "+files[0])
	code, said = run("; false", "search", "--regressions", out)
	require.Equal(t, exitUnusable, code, said)
	require.Contains(t, said, "the client breaks even without faults: it failed (exit status 1): ")
}

func TestSearchCountsShouldRules(t *testing.T) {
	t.Parallel()
	target, out := jobsShown(t, "queued"), t.TempDir()
	file := filepath.Join(out, "read.yaml")
	require.NoError(t, os.WriteFile(file, []byte("- {match: {operation: read, nth: 1}, effect: {status: 503, retry_after: 1}}\n"), 0o600))
	const submit = `job=$(curl -sf -D - -o /dev/null "$FORGERUN_URL/jobs" -d '{}' | sed -n 's/^location: *//Ip' | tr -d '\r'); `
	run := func(read string, flags ...string) (code int, said string) {
		code, stdout, stderr := invoke(t, append(flags, "--target", target, "--", "sh", "-c", submit+read)...)
		return code, stdout + stderr
	}
	const silent = `curl -s "$FORGERUN_URL$job" || true`
	code, said := run(silent, "search", "--regressions", out)
	require.Equal(t, exitDifferent, code, said)
	require.Contains(t, said, "BROKEN  "+file+"\n          outcome-learned: ")
	code, said = run(silent, "verdict", "--faults", file, "--require", "outcome-learned")
	require.Equal(t, exitDifferent, code, said)

	const impatient = `curl -sf "$FORGERUN_URL$job" || curl -sf "$FORGERUN_URL$job"`
	code, said = run(impatient, "search", "--regressions", out)
	require.Equal(t, exitOK, code, said)
	code, said = run(impatient, "search", "--regressions", out, "--strict")
	require.Equal(t, exitDifferent, code, said)
	require.Contains(t, said, "BROKEN  "+file+"\n          backoff: ")
}

func TestUnsearchable(t *testing.T) {
	t.Parallel()
	target := endedJobs(t)
	for command, want := range map[string]string{
		"true": "no request arrived. Does the command use FORGERUN_URL, or a variable of --url-env, instead of " + target + "?\n",
		"false": "the client breaks even without faults: it failed (exit status 1); fix this first:\n" +
			"  forgerun verdict --profile none --target " + target + " --url-env API_URL -- false\n",
	} {
		code, _, stderr := invoke(t, "search", "--workers", "1", "--out", t.TempDir(), "--target", target, "--url-env", "API_URL", "--", command)
		require.Equal(t, exitUnusable, code, stderr)
		require.Equal(t, "forgerun: "+want, stderr)
	}
}

func TestSearchAsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := invoke(t, "search", "--json", "--first", "--out", t.TempDir(), "--target", endedJobs(t), "--",
		"sh", "-c", `curl -sf "$FORGERUN_URL/jobs" -d '{}'`)
	require.Equal(t, exitDifferent, code, stderr)
	var report search.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report), stdout)
	require.Len(t, report.Findings, 1)
	require.Equal(t, []search.Operation{{Name: "submit", Of: "submissions", Requests: 1}}, report.Operations)
}
