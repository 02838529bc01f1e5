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

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/testkit"
)

type runReport struct {
	Outcome string
	Totals  struct {
		Faults   int
		Finished map[string]int
	}
	FaultKinds []struct{ Kind string } `json:"fault_kinds"`
	Faults     []struct{ Kind, Target string }
	Notes      []string
}

func runScenario(t *testing.T, args ...string) (report runReport) {
	t.Helper()
	out := t.TempDir()
	args = append([]string{"run", "--forgerun", testkit.Program(t, "forgerun"), "--out", out}, args...)
	code, stdout, stderr := simulate(t, args...)
	require.Equal(t, command.Succeeded, code, "%s\n%s", stdout, stderr)
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
	require.NoDirExists(t, filepath.Join(out, "history"), "the history of a run without violations is removed")
	t.Logf("%s", stdout)
	return report
}

func TestRunAutoscale(t *testing.T) {
	t.Parallel()
	report := runScenario(t, "autoscale", "--duration", "30s", "--workers", "1,16,1")
	require.Positive(t, report.Totals.Finished["SUCCEEDED"])
	require.Regexp(t, `scaling stopped 15 worker processes; the slowest ended \S+ after SIGTERM`, strings.Join(report.Notes, "\n"))
}

func TestRunSoakUnderFaults(t *testing.T) {
	// Not parallel, because the test needs the CPU for enough load.
	report := runScenario(t, "soak", "--duration", "60s", "--seed", "7", "--workers", "1..3",
		"--chaos", "kill=8s,stop=15s,term=20s,flush=20s,redis=30s,redis-pause=30s,redis-full=40s,postgres=40s,cut=2s,lose=3s,slow=10s,stall=20s")
	require.Greater(t, report.Totals.Faults, 100)
	require.Greater(t, len(report.FaultKinds), 8, "kinds of faults")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 1000)
}

func TestRunSoakWithAClockThatJumps(t *testing.T) {
	// Not parallel, because the test needs the CPU for enough load.
	report := runScenario(t, "moved-clock", "--seed", "7", "--chaos", "clock=700ms,kill=6s,flush=10s,cut=2s,lose=3s")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 50)
	moves := map[string]int{}
	for _, f := range report.Faults {
		if f.Kind == "clock" {
			move, _, _ := strings.Cut(strings.TrimPrefix(f.Target, "clock, "), " ")
			moves[move]++
		}
	}
	require.Len(t, moves, 3, "kinds of clock faults: %v", moves)
}
