package stack

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// parentEnv names the folder for the servers of a parent process; see runAsParent.
const parentEnv = "STACK_TEST_PARENT_DIR"

func runAsParent(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	postgres, err := StartPostgres(ctx, ServerOptions{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	redis, err := StartRedis(ctx, ServerOptions{Dir: filepath.Join(dir, "redis")})
	if err != nil {
		return err
	}
	other, err := StartProcess(Command{Path: "sleep", Args: []string{"600"}, Log: os.DevNull, DeathSignal: syscall.SIGKILL})
	if err != nil {
		return err
	}
	endThreads()
	if os.Getenv("STACK_TEST_PAUSE_REDIS") != "" {
		if err := redis.Pause(); err != nil {
			return err
		}
	}
	fmt.Println(postgres.URL(), other.PID())
	select {}
}

// endThreads ends most threads of this process, as the Go runtime may do at any time. Linux sends a child its death signal (Pdeathsig) when
// the thread that started the child ends. The servers must survive this.
func endThreads() {
	var together, all sync.WaitGroup
	const threads = 64
	together.Add(threads)
	for range threads {
		all.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			together.Done()
			together.Wait() // all goroutines wait here at once, so each has a thread of its own
		})
	}
	all.Wait()
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent; elsewhere the next start does")
	}
	for _, how := range []string{"", "STACK_TEST_PAUSE_REDIS=1", "at once"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Dir(postgresDir(t))
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), parentEnv+"="+dir, how)
			url, other := startParent(t, parent)
			query(t, url, "CREATE TABLE kept AS SELECT 'yes' AS value")
			require.False(t, hasEnded(other) || isFree(t, dir, "postgres") || isFree(t, dir, "redis"))

			require.NoError(t, parent.Process.Kill())
			_ = parent.Wait()
			if how != "at once" { // in the case "at once", the new servers start while the old servers may still run
				testkit.Eventually(t, "all children are gone", func() bool {
					return hasEnded(other) && isFree(t, dir, "postgres") && isFree(t, dir, "redis")
				})
			}
			p := newPostgres(t, ServerOptions{Dir: filepath.Join(dir, "postgres")})
			require.Equal(t, "yes", query(t, p.URL(), "SELECT value FROM kept"))
			newRedis(t, ServerOptions{Dir: filepath.Join(dir, "redis")})
		})
	}
}

func isFree(t *testing.T, dir, name string) bool {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name, runningName))
	require.NoError(t, err)
	defer f.Close()
	busy, err := lockFile(f)
	require.True(t, busy || err == nil, err)
	return !busy
}

func startParent(t *testing.T, cmd *exec.Cmd) (postgresURL string, other int) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the parent prints a line")
	_, err = fmt.Sscan(lines.Text(), &postgresURL, &other)
	require.NoError(t, err, lines.Text())
	return postgresURL, other
}
