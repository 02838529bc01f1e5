package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/testkit"
)

// told is what the tests read of report.json.
type told struct {
	Outcome string
	Totals  struct {
		Faults   int
		Finished map[string]int
	}
	FaultKinds []struct{ Kind string } `json:"fault_kinds"`
	Faults     []struct{ Kind, Target string }
}

// runScenario plays a scenario against a real service of its own, and wants all promises kept.
func runScenario(t *testing.T, args ...string) (report told) {
	t.Helper()
	out := t.TempDir()
	args = append([]string{"run", "--forgerun", testkit.Program(t, "forgerun"), "--out", out}, args...)
	code, stdout, stderr := simulate(t, args...)
	require.Equal(t, exitOK, code, "%s\n%s", stdout, stderr)
	require.Contains(t, stdout, "no violation")
	content, err := os.ReadFile(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &report))
	require.Equal(t, "PASSED", report.Outcome)
	junit, err := os.ReadFile(filepath.Join(out, "junit.xml"))
	require.NoError(t, err)
	var suite struct {
		Cases []struct{} `xml:"testsuite>testcase"`
	}
	require.NoError(t, xml.Unmarshal(junit, &suite))
	require.NotEmpty(t, suite.Cases)
	require.NoDirExists(t, filepath.Join(out, "history"), "it was not needed")
	t.Logf("%s", stdout)
	return report
}

const disturbedLoad = `
duration: 5s
drain: 2m
tenants: 2
arrival: {open: [{rate: 20/s}]}
mix:
  - {kind: SUCCESS_FAST, weight: 4}
  - {kind: RETRY_ON_FAIL, auto_retry: true}
  - {kind: RETRY_ON_FAIL, retry: {max: 1}}
  - {kind: CANCEL_DURING_RUN, cancel: {in: RUNNING}}
  - {kind: DUPLICATE_SUBMIT_SAME_KEY, duplicate: {copies: 2, at_once: true}}
  - {kind: SCHEDULED_ON_TIME, type: DEFERRED, ahead: 1s..2s}
  - {kind: WEBHOOK_SUCCESS, callback: called}
  - {kinds: [SUCCESS_FAST, FAIL_IMMEDIATE], batch: 5}
  - {type: EMIT_EVENT}
receivers:
  - {name: all, events: ["job.*", batch.completed], answers: [{status: 503, share: 10%}]}
  - {name: called, callback: true}
readers: {poll: 5%}
service:
  workers: 1..2
  concurrency: 20
  time_scale: 0.01
  env:
    FORGERUN_RETRY_BACKOFF_BASE: 100ms
    FORGERUN_RETRY_BACKOFF_MAX: 500ms
    FORGERUN_WEBHOOK_BACKOFF_BASE: 100ms
    FORGERUN_WEBHOOK_BACKOFF_MAX: 500ms
    FORGERUN_WEBHOOK_ALLOW_PRIVATE: true
    FORGERUN_WEBHOOK_DISABLE_AFTER: 1h
chaos: kill=2s,flush=2s,cut=500ms
`

// TestRunUnderFaults is the whole thing for a moment: load of several tenants, workers that come and go, faults, and the judge. The
// soaks do it for longer (soak_test.go).
func TestRunUnderFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "disturbed.yaml")
	require.NoError(t, os.WriteFile(file, []byte(disturbedLoad), 0o600))
	report := runScenario(t, file, "--seed", "7", "--lease", "1s")
	require.Positive(t, report.Totals.Faults)
	require.Positive(t, report.Totals.Finished["SUCCEEDED"])
}

func TestTheReportShowsNoSecret(t *testing.T) {
	t.Parallel()
	line := commandLine([]string{"steady", "--key", "frk_a", "--key=frk_b", "-key", "frk_c", "--database-url", "postgres://u:p@h/d",
		"--redis-url=redis://:p@h", "--seed", "3"})
	require.Equal(t, "simulator run steady --key ... --key=... -key ... --database-url ... --redis-url=... --seed 3", line)
}

func TestScenariosAreListedAndPrinted(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := simulate(t, "scenarios")
	require.Equal(t, exitOK, code, stderr)
	for _, name := range scenario.Names() {
		require.Contains(t, stdout, name+" ")
	}
	code, stdout, _ = simulate(t, "scenarios", "steady")
	require.Equal(t, exitOK, code)
	_, err := scenario.Parse("steady.yaml", []byte(stdout))
	require.NoError(t, err)
	code, stdout, _ = simulate(t, "scenarios", "--schema")
	require.Equal(t, exitOK, code)
	require.True(t, json.Valid([]byte(stdout)))
}
