package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestReportedCommandHasNoSecrets(t *testing.T) {
	t.Parallel()
	line := commandLine("forgerun simulate run", []string{"simulate", "run", "steady", "--key", "frk_a", "--key=frk_b", "-key", "frk_c",
		"--database-url", "host=h password=p", "--redis-url=redis://:p@h", "--seed", "3"})
	require.Equal(t, "forgerun simulate run steady --key ... --key=... -key ... --database-url ... --redis-url=... --seed 3", line)
}

func TestScenariosAreListedAndPrinted(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := simulate(t, "scenarios")
	require.Equal(t, command.Succeeded, code, stderr)
	for _, name := range scenario.Names() {
		require.Contains(t, stdout, name+" ")
	}
	code, stdout, _ = simulate(t, "scenarios", "steady")
	require.Equal(t, command.Succeeded, code)
	_, err := scenario.Parse("steady.yaml", []byte(stdout))
	require.NoError(t, err)
	code, stdout, _ = simulate(t, "scenarios", "--schema")
	require.Equal(t, command.Succeeded, code)
	require.True(t, json.Valid([]byte(stdout)))
}

func TestShorterRunsHaveFewerSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario, workers string
		duration          time.Duration
		want              string
	}{
		{"autoscale", "", 20 * time.Second, "1,16,1,16"},
		{"autoscale", "", time.Second, "1"},
		{"autoscale", "", 2 * time.Minute, strings.TrimSuffix(strings.Repeat("1,16,", 12), ",")},
		{"autoscale", "1,16,1", 20 * time.Second, "1,16,1"},
		{"burst", "", 8 * time.Second, "1..3"},
	} {
		f := &runFlags{workers: c.workers, duration: c.duration}
		f.Lease = time.Second
		require.NoError(t, f.load(c.scenario))
		require.Equal(t, c.want, f.Scenario.Service.Workers, "%s for %s", c.scenario, c.duration)
	}
}

func TestRunWithTooFewAcceptedSubmissions(t *testing.T) {
	t.Parallel()
	const text = `
jobs: 60
arrival: {open: [{rate: 100/s}]}
mix: [{kind: SUCCESS_NORMAL}] # half a second
service: {time_scale: 0.05, env: {FORGERUN_MAX_ACTIVE_JOBS: 3}}
`
	dir := t.TempDir()
	file, out := filepath.Join(dir, "limited.yaml"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, stdout, stderr := simulate(t, "run", file, "--forgerun", testkit.Program(t, "forgerun"), "--out", out)
	require.Equal(t, command.WrongUsage, code, "%s\n%s", stdout, stderr)
	require.Regexp(t,
		`^\nINCONCLUSIVE 1\d of 16 invariants held: [0-9.]+ % of 60 submissions accepted, [0-9.]+ % refused, 0 % unanswered\n`, stdout)
	require.Contains(t, stdout, "503 RFA_EXEC_QUEUE_FULL", "the reason of the refusals")
	content, err := os.ReadFile(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	var report struct{ Outcome string }
	require.NoError(t, json.Unmarshal(content, &report))
	require.Equal(t, "INCONCLUSIVE", report.Outcome)
}
