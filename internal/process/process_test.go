package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// parentEnv makes the test binary be a parent of a process, to be killed.
const parentEnv = "PROCESS_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "" {
		os.Exit(m.Run())
	}
	p, err := Start(Command{Path: "sleep", Args: []string{"600"}, Log: Log{Path: os.DevNull}, DeathSignal: syscall.SIGKILL})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	select {}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// shell returns a command that runs a script.
func shell(t *testing.T, script string) Command {
	t.Helper()
	return Command{Path: "sh", Args: []string{"-c", script}, Log: Log{Path: filepath.Join(t.TempDir(), "log"), Mode: 0o600}}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

// startSaying starts a script and waits for its first line of output.
func startSaying(t *testing.T, script string) (p *Process, line string) {
	t.Helper()
	p = start(t, shell(t, script))
	require.NoError(t, p.Await(testContext(t), func(context.Context) (bool, error) {
		var whole bool
		line, _, whole = strings.Cut(p.Output(), "\n")
		return whole, nil
	}))
	return p, line
}

func TestExitState(t *testing.T) {
	t.Parallel()
	p := start(t, shell(t, "echo out; echo err >&2; exit 3"))
	require.ErrorContains(t, p.Wait(testContext(t)), "exit status 3")
	require.True(t, p.HasExited())
	require.False(t, p.IsStopping(), "nobody asked for it")
	require.Equal(t, 3, p.ExitCode())
	require.EqualError(t, p.ExitReason(), "exit status 3")
	require.Equal(t, "out\nerr\n", p.Output())
	require.True(t, HasEnded(p.PID()))
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), ErrNotRunning)
	require.ErrorContains(t, p.Stop(testkit.Patience), "did not end cleanly: exit status 3")

	p = start(t, shell(t, "true"))
	require.NoError(t, p.Wait(testContext(t)))
	require.Zero(t, p.ExitCode())
	require.EqualError(t, p.ExitReason(), "exit status 0")
	require.NoError(t, p.Stop(testkit.Patience))
}

func TestCommandIsRunAsToldTo(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	var out bytes.Buffer
	p := start(t, Command{
		Path: "/bin/sh", Args: []string{"-c", `pwd; echo "$GREETING $HOME"; echo passed >&3`}, Dir: "/",
		Env: []string{"GREETING=hello"}, Files: []*os.File{w}, Output: &out,
	})
	require.NoError(t, w.Close())
	require.NoError(t, p.Wait(testContext(t)))
	require.Equal(t, "/\nhello \n", out.String())
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "passed\n", line)

	_, err = Start(Command{Path: "/nonexistent/program", Output: &out})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "cannot start /nonexistent/program")
}

func TestStopTwiceAndBeforeTheStart(t *testing.T) {
	t.Parallel()
	var never *Process
	require.NoError(t, never.Stop(time.Second))
	require.NoError(t, never.End())
	never.Kill()
	require.Zero(t, never.PID())
	require.True(t, never.HasExited())
	require.ErrorIs(t, never.Pause(), ErrNotRunning)

	p, _ := startSaying(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	group, err := syscall.Getpgid(p.PID())
	require.NoError(t, err)
	require.Equal(t, p.PID(), group, "a process group of its own")
	require.NoError(t, p.Stop(testkit.Patience))
	require.True(t, p.IsStopping())
	require.NoError(t, p.Stop(testkit.Patience))
	p.Kill()
	require.Zero(t, p.ExitCode())
}

func TestPausedProcessIsStopped(t *testing.T) {
	t.Parallel()
	p, _ := startSaying(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	require.NoError(t, p.Pause())
	require.NoError(t, p.Continue())
	require.NoError(t, p.Pause())
	require.NoError(t, p.Stop(testkit.Patience))
	require.ErrorIs(t, p.Continue(), ErrNotRunning)
}

func TestKillReachesGrandchildren(t *testing.T) {
	t.Parallel()
	const script = "trap '' TERM; sleep 600 & echo $!; wait"
	for name, end := range map[string]func(*Process) error{
		"stop": func(p *Process) error {
			err := p.Stop(50 * time.Millisecond)
			require.ErrorContains(t, err, "had not ended 50ms after SIGTERM and was killed")
			return nil
		},
		"kill": func(p *Process) error { p.Kill(); return nil },
		"wait": func(p *Process) error {
			ctx, cancel := context.WithCancelCause(testContext(t))
			cancel(errors.New("no time"))
			require.EqualError(t, p.Wait(ctx), "no time")
			return nil
		},
	} {
		p, line := startSaying(t, script)
		grandchild, err := strconv.Atoi(line)
		require.NoError(t, err)
		require.NoError(t, end(p), name)
		require.Equal(t, -1, p.ExitCode())
		testkit.Eventually(t, name, func() bool { return HasEnded(grandchild) })
	}
}

func TestStepsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	p, _ := startSaying(t, "trap '' INT; trap 'exit 5' QUIT; echo ready; while :; do sleep 0.01; done")
	err := p.End(Step{syscall.SIGINT, 50 * time.Millisecond}, Step{syscall.SIGQUIT, testkit.Patience})
	require.ErrorContains(t, err, "had not ended 50ms after SIGINT")
	require.Equal(t, 5, p.ExitCode())
}

func TestKillDuringAStop(t *testing.T) {
	t.Parallel()
	p, _ := startSaying(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	stopped := make(chan error)
	go func() { stopped <- p.Stop(testkit.Patience) }()
	<-p.Stopping()
	p.Kill()
	require.NoError(t, <-stopped, "the kill was asked for too")
}

func TestAwait(t *testing.T) {
	t.Parallel()
	p := start(t, shell(t, "exec sleep 600"))
	require.NoError(t, p.Await(testContext(t), func(context.Context) (bool, error) { return true, nil }))
	broken := errors.New("broken")
	require.ErrorIs(t, p.Await(testContext(t), func(context.Context) (bool, error) { return false, broken }), broken)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	never := func(context.Context) (bool, error) { return false, nil }
	require.ErrorIs(t, p.Await(ctx, never), context.Canceled)

	p = start(t, shell(t, "exit 3"))
	err := p.Await(testContext(t), never)
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "exit status 3")
	require.ErrorIs(t, p.Await(testContext(t), func(context.Context) (bool, error) { return true, nil }), ErrExited, "somebody else is ready")
}

func TestRun(t *testing.T) {
	t.Parallel()
	require.NoError(t, Run(testContext(t), shell(t, "true")))
	err := Run(testContext(t), shell(t, "echo reason; exit 3"))
	require.ErrorContains(t, err, "exit status 3; the last lines of ")
	require.True(t, strings.HasSuffix(err.Error(), "| reason"), err)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	require.ErrorIs(t, Run(ctx, shell(t, "exec sleep 600")), context.Canceled)
}

func TestProcessesDieWithTheirParent(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(child, 0))
	require.Equal(t, []string{"sleep", "600"}, CommandLine(testContext(t), child))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	testkit.Eventually(t, "the child is gone", func() bool { return HasEnded(child) })
}
