package commands

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := simulate(t, "demo", "--forgerun", testkit.Program(t, "forgerun"), "--out", t.TempDir())
	require.Equal(t, command.Succeeded, code, stdout+stderr)
	require.Contains(t, stdout, "\n31 of 31 work kinds as expected\n")
}

func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "forgerun")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &testkit.Output{First: cancel}
	f := &runFlags{}
	f.Binary, f.Out, f.ReceiverAddr, f.Lease = program(t, "exec sleep 600"), t.TempDir(), anyPort, defaultLease
	require.NoError(t, f.load("tour"))
	require.Equal(t, command.Interrupted, f.play(ctx, command.Program{Stdout: stderr, Stderr: stderr}, ""), stderr.String())
	require.Contains(t, stderr.String(), "Starting a service")
}
