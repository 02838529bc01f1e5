package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// A run whose submissions were nearly all refused has tested nothing: no invariant is broken, and it is not passed.
func TestRunOfWhichTooLittleWasAccepted(t *testing.T) {
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
	require.Equal(t, exitUnusable, code, "%s\n%s", stdout, stderr)
	require.Regexp(t,
		`^\nINCONCLUSIVE 1\d of 16 invariants held: [0-9.]+ % of 60 submissions accepted, [0-9.]+ % refused, 0 % unanswered\n`, stdout)
	require.Contains(t, stdout, "503 RFA_EXEC_QUEUE_FULL", "why they were refused")
	content, err := os.ReadFile(filepath.Join(out, "report.json"))
	require.NoError(t, err)
	var report struct{ Outcome string }
	require.NoError(t, json.Unmarshal(content, &report))
	require.Equal(t, "INCONCLUSIVE", report.Outcome)
}
