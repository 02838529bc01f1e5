package stack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func shell(t *testing.T, script string) Command {
	t.Helper()
	return Command{Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log")}
}

func startProcess(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := StartProcess(c)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func startAndReadLine(t *testing.T, script string) (p *Process, line string) {
	t.Helper()
	p = startProcess(t, shell(t, script))
	require.NoError(t, p.Await(testContext(t), func(context.Context) bool {
		var whole bool
		line, _, whole = strings.Cut(p.Output(), "\n")
		return whole
	}))
	return p, line
}

func TestCommandOptions(t *testing.T) {
	t.Parallel()
	c := shell(t, `pwd; read -r line; echo "$GREETING $HOME $line"; echo err >&2; exit 3`)
	c.Dir, c.Env, c.Input = "/", []string{"GREETING=hello"}, strings.NewReader("input\n")
	p := startProcess(t, c)
	require.EqualError(t, p.exitReason(), "exit status 3")
	require.True(t, p.HasExited())
	require.False(t, p.stopping.Load(), "neither Stop nor Kill was called")
	require.Equal(t, "/\nhello  input\nerr\n", p.Output())
	require.True(t, hasEnded(p.PID()))
	require.ErrorIs(t, p.signal(syscall.SIGTERM), ErrNotRunning)
	require.ErrorContains(t, p.Stop(testkit.Patience), "did not end cleanly: exit status 3")

	_, err := StartProcess(Command{Path: "/nonexistent/program", Log: os.DevNull})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "cannot start /nonexistent/program")
}

func TestStopOfAPausedProcess(t *testing.T) {
	t.Parallel()
	p, _ := startAndReadLine(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	require.NoError(t, p.Pause())
	require.NoError(t, p.Resume())
	require.NoError(t, p.Pause())
	require.NoError(t, p.Stop(testkit.Patience), "a paused process is stopped")
	require.True(t, p.stopping.Load())
	require.NoError(t, p.Stop(testkit.Patience))
	p.Kill()
	require.ErrorIs(t, p.Resume(), ErrNotRunning)
}

func TestKillReachesGrandchildren(t *testing.T) {
	t.Parallel()
	const script = "trap '' TERM; sleep 600 & echo $!; wait"
	for name, end := range map[string]func(*Process){
		"stop": func(p *Process) {
			require.ErrorContains(t, p.Stop(50*time.Millisecond), "had not ended 50ms after SIGTERM and was killed")
		},
		"kill": (*Process).Kill,
		"kill during a stop": func(p *Process) {
			stopped := make(chan error)
			go func() { stopped <- p.Stop(testkit.Patience) }()
			testkit.Eventually(t, "the stop is under way", p.stopping.Load)
			p.Kill()
			require.NoError(t, <-stopped, "Stop reports no error after a Kill")
		},
	} {
		p, line := startAndReadLine(t, script)
		grandchild, err := strconv.Atoi(line)
		require.NoError(t, err)
		end(p)
		require.EqualError(t, p.exitReason(), "signal: killed")
		testkit.Eventually(t, name, func() bool { return hasEnded(grandchild) })
	}
}

func TestRunProcess(t *testing.T) {
	t.Parallel()
	require.NoError(t, RunProcess(testContext(t), shell(t, "true")))
	c := shell(t, "seq 30; echo reason; exit 3")
	require.NoError(t, os.WriteFile(c.Log, []byte("a former run\n"), 0o600))
	err := RunProcess(testContext(t), c)
	require.ErrorContains(t, err, "exit status 3; the last lines of "+c.Log)
	require.NotContains(t, err.Error(), "former run")
	require.Equal(t, tailLines, strings.Count(err.Error(), logIndent))
	require.True(t, strings.HasSuffix(err.Error(), "| reason"), err)
	c.Args[1] = "exit 3"
	require.ErrorContains(t, RunProcess(testContext(t), c), "nothing in "+c.Log)
	ctx, cancel := context.WithCancelCause(testContext(t))
	cancel(errors.New("no time"))
	require.EqualError(t, RunProcess(ctx, shell(t, "exec sleep 600")), "no time")
}

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	c := shell(t, "echo new")
	require.NoError(t, os.WriteFile(c.Log, make([]byte, maxLogBytes+1), 0o600))
	for range 2 {
		p := startProcess(t, c)
		<-p.exited
		require.Equal(t, "new\n", p.Output())
	}
	text, err := os.ReadFile(c.Log)
	require.NoError(t, err)
	require.Equal(t, "new\nnew\n", string(text))
	require.FileExists(t, c.Log+".old")
}
