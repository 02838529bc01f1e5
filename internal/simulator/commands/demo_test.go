package commands

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// newDemo gives a demo of a program.
func newDemo(t *testing.T, binary string, environ ...string) (d *demo, stdout, stderr *testkit.Output) {
	t.Helper()
	stdout, stderr = &testkit.Output{}, &testkit.Output{}
	return &demo{
		binary: binary, environ: append(os.Environ(), environ...), Program: Program{Stdout: stdout, Stderr: stderr},
	}, stdout, stderr
}

// bad is a program in place of forgerun.
func bad(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/forgerun")
	require.NoError(t, err)
	return path
}

func TestDemo(t *testing.T) {
	t.Parallel()
	d, stdout, stderr := newDemo(t, testkit.Program(t, "forgerun"))
	d.kinds = []string{"SUCCESS_FAST", "WEBHOOK_SUCCESS"}
	require.Equal(t, exitOK, d.run(t.Context()), stdout.String()+stderr.String())
	require.Contains(t, stdout.String(), "All 2 kinds behaved as the catalogue says")
	require.NotContains(t, stderr.String(), "last lines")
}

func TestDemoOfAProgramThatFails(t *testing.T) {
	t.Parallel()
	for way, wants := range map[string][]string{
		"broken":             {"ended before it was ready: exit status 3", "\ncannot find Postgres\n", "The last lines of its log:"},
		"ends with an error": {"cannot be used: no answer to ", "did not end cleanly: exit status 4"},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d, stdout, stderr := newDemo(t, bad(t), "SIMULATOR_TEST_WAY="+way)
			require.Equal(t, exitUnusable, d.run(t.Context()))
			require.Empty(t, stdout.String())
			for _, want := range wants {
				require.Contains(t, stderr.String(), want)
			}
		})
	}
}

// A demo that is interrupted while its service starts leaves no process.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	d, _, stderr := newDemo(t, bad(t), "SIMULATOR_TEST_WAY=silent")
	ctx, cancel := context.WithCancel(t.Context())
	stderr.First = cancel
	require.Equal(t, exitInterrupted, d.run(ctx), stderr.String())
	require.Contains(t, stderr.String(), "Starting a service")
}
