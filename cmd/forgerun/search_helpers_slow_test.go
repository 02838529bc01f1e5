//go:build slow

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/verdict/search"
)

// planted is the folder of clients whose mistakes appear only after more than one fault.
const planted = "testdata/planted/"

// runPlanted runs forgerun for a client that makes the mistake, and returns its exit code and output.
func runPlanted(t *testing.T, mistake string, arguments ...string) (code int, stdout []byte, stderr string) {
	t.Helper()
	c, said := exec.CommandContext(t.Context(), testkit.Program(t, "forgerun"), arguments...), &testkit.Output{}
	c.Env, c.Stderr = append(os.Environ(), "MISTAKE="+mistake), said
	stdout, err := c.Output()
	if exit := (&exec.ExitError{}); !errors.As(err, &exit) {
		require.NoError(t, err, said.String())
	}
	return c.ProcessState.ExitCode(), stdout, said.String()
}

func faultsOf(f search.Finding) (n int) {
	for _, step := range f.Schedule {
		n += step.Times
	}
	return n
}

// instantJobs serves the part of ForgeRun's API that the clients need. Each job ends at once.
func instantJobs(t *testing.T) string {
	t.Helper()
	var mu sync.Mutex
	known := map[string]string{} // ids by key
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if known[key] == "" {
			known[key] = fmt.Sprint("job-", len(known)+1)
		}
		w.Header().Set("Location", "/v1/jobs/"+known[key])
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"job_id": %q, "state": "QUEUED"}`, known[key])
	})
	mux.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"job_id": %q, "state": "SUCCEEDED"}`, r.PathValue("id"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// A client uses a new Idempotency-Key from its second repetition on, so it takes two lost responses to expose the mistake. Running the
// finding's file exposes it again until the mistake is fixed.
func TestSearchFindsTwoFaultMistake(t *testing.T) {
	t.Parallel()
	if missing := missingProgram("python3", "install Python 3"); missing != "" {
		t.Skip(missing)
	}
	found := filepath.Join(t.TempDir(), "found")
	run := func(mistake string, arguments ...string) (code int, stdout []byte, stderr string) {
		arguments = append(arguments, "--target", instantJobs(t), "--api", "forgerun", "--")
		return runPlanted(t, mistake, append(arguments, "env", "FORGERUN_API_KEY=key", "python3", planted+"client.py")...)
	}
	code, stdout, stderr := run("fresh-key", "search", "--first", "--workers", "16", "--min-support", "2", "--json", "--out", found)
	require.Equal(t, 1, code, stderr)
	var report search.Report
	require.NoError(t, json.Unmarshal(stdout, &report), string(stdout))
	require.Len(t, report.Findings, 1)
	first := report.Findings[0]
	rule := first.Breaks[0].Rule
	require.Equal(t, "no-duplicates", rule, first.Words)
	require.Equal(t, 2, faultsOf(first), first.Words)
	require.Equal(t, first.Runs, first.Hits)

	code, stdout, stderr = run("fresh-key", "verdict", "--faults", filepath.Join(found, first.Name+".yaml"))
	require.Equal(t, 1, code, stderr)
	require.Regexp(t, `(?m)^ +FAIL +`+rule, string(stdout))

	code, stdout, stderr = run("fresh-key", "search", "--regressions", found)
	require.Equal(t, 1, code, stderr)
	require.Contains(t, string(stdout), "BROKEN  ")
	require.Contains(t, string(stdout), rule+": ")
	code, stdout, stderr = run("", "search", "--regressions", found)
	require.Equal(t, 0, code, "%s%s", stdout, stderr)
}
