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
