package yardstick

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestPgbench(t *testing.T) {
	t.Parallel()
	rate, err := pgbenchRate("latency average = 3.1 ms\ninitial connection time = 60 ms\n" +
		"tps = 20512.345678 (without initial connection time)\n")
	require.NoError(t, err)
	require.InEpsilon(t, 20512.345678, rate, 1e-9)
	_, err = pgbenchRate("pgbench: error")
	require.Error(t, err)

	script, err := pgbenchScript(uuid.New())
	require.NoError(t, err)
	require.NotRegexp(t, `[^:]:[A-Za-z0-9_]`, script, "pgbench would take it for a variable")
	require.Contains(t, script, `"work_kind": "PAYLOAD_SMALL"`)
	require.NotContains(t, script, "%!", "all is filled in")
	require.Equal(t, 1, strings.Count(script, ";"), "one statement is one transaction")
}
