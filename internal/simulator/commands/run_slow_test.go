//go:build slow

package commands

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// told is the part of report.json that the tests read.
type told struct {
	Outcome string
	Totals  struct {
		Faults   int
		Finished map[string]int
	}
	FaultKinds []struct{ Kind string } `json:"fault_kinds"`
	Faults     []struct{ Kind, Target string }
	Notes      []string
}

// runScenario plays a scenario against its own real service, and requires that all promises are kept.
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
		Cases []struct{} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(junit, &suite))
	require.NotEmpty(t, suite.Cases)
	require.NoDirExists(t, filepath.Join(out, "history"), "it was not needed")
	t.Logf("%s", stdout)
	return report
}

const disturbedLoad = `
duration: 2s
drain: 2m
tenants: 2
arrival: {open: [{rate: 40/s}]}
mix:
  - {kind: SUCCESS_FAST, weight: 4}
  - {kind: RETRY_ON_FAIL, auto_retry: true}
  - {kind: RETRY_ON_FAIL, retry: {max: 1}}
  - {kind: CANCEL_DURING_RUN, cancel: {in: RUNNING}}
  - {kind: DUPLICATE_SUBMIT_SAME_KEY, duplicate: {copies: 2, at_once: true}}
  - {kind: SCHEDULED_ON_TIME, type: DEFERRED, ahead: 1s..2s}
  - {kinds: [SUCCESS_FAST, FAIL_IMMEDIATE], batch: 5}
  - {type: EMIT_EVENT}
readers: {poll: 5%}
service:
  workers: 1..2
  concurrency: 20
  time_scale: 0.01
  env:
    FORGERUN_RETRY_BACKOFF_BASE: 100ms
    FORGERUN_RETRY_BACKOFF_MAX: 500ms
chaos: kill=700ms,flush=700ms,cut=300ms
`

// TestRunUnderFaults is the whole thing for a moment: load of several tenants, workers that come and go, a fault of each
// class, and the judge. The soaks do it for longer, and with webhooks: what a killed process had on its way to
// receivers is sent again when its claims have ended.
func TestRunUnderFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "disturbed.yaml")
	require.NoError(t, os.WriteFile(file, []byte(disturbedLoad), 0o600))
	report := runScenario(t, file, "--seed", "7", "--lease", "1s")
	var kinds []string
	for _, f := range report.FaultKinds {
		kinds = append(kinds, f.Kind)
	}
	require.ElementsMatch(t, []string{"kill", "flush", "cut"}, kinds, "one of each class: processes, stores, connections")
	require.Positive(t, report.Totals.Finished["SUCCEEDED"])
}

// TestRunAutoscale: fifteen workers come and go under load, with jobs longer than their grace. The scenario alone takes two minutes.
func TestRunAutoscale(t *testing.T) {
	t.Parallel()
	report := runScenario(t, "autoscale", "--duration", "30s", "--workers", "1,16,1")
	require.Positive(t, report.Totals.Finished["SUCCEEDED"])
	require.Regexp(t, `scaling stopped 15 worker processes; the slowest ended \S+ after SIGTERM`, strings.Join(report.Notes, "\n"))
}

// TestRunSoakUnderFaults is the whole thing: a mixed load of several tenants,
// workers that come and go, and faults of each kind on everything, after which
// every promise must have been kept. The seed makes requests and faults the same
// each time.
func TestRunSoakUnderFaults(t *testing.T) {
	// Not beside other tests: what it proves depends on how much is done in its time.
	report := runScenario(t, "soak", "--duration", "60s", "--seed", "7", "--workers", "1..3",
		"--chaos", "kill=8s,stop=15s,term=20s,flush=20s,redis=30s,redis-pause=30s,redis-full=40s,postgres=40s,cut=2s,lose=3s,slow=10s,stall=20s")
	require.Greater(t, report.Totals.Faults, 100)
	require.Greater(t, len(report.FaultKinds), 8, "faults of nearly all kinds")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 1000)
}

// TestRunSoakWithAClockThatJumps is the same for a service whose clock jumps, stands still and runs at other rates, beside faults of
// other kinds: nothing starts before its time, and what has become due has ended.
func TestRunSoakWithAClockThatJumps(t *testing.T) {
	// Not beside other tests, as above.
	report := runScenario(t, "moved-clock", "--seed", "7", "--chaos", "clock=700ms,kill=6s,flush=10s,cut=2s,lose=3s")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 50)
	moves := map[string]int{}
	for _, f := range report.Faults {
		if f.Kind == "clock" {
			what, _, _ := strings.Cut(strings.TrimPrefix(f.Target, "clock, "), " ")
			moves[what]++
		}
	}
	require.Len(t, moves, 3, "it jumped, stood still and ran at another rate: %v", moves)
}
