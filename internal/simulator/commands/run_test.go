package commands

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func TestTheReportShowsNoSecret(t *testing.T) {
	t.Parallel()
	line := commandLine("forgerun simulate run", []string{"simulate", "run", "steady", "--key", "frk_a", "--key=frk_b", "-key", "frk_c",
		"--database-url", "host=h password=p", "--redis-url=redis://:p@h", "--seed", "3"})
	require.Equal(t, "forgerun simulate run steady --key ... --key=... -key ... --database-url ... --redis-url=... --seed 3", line)
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
