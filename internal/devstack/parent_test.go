package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/process"
	"github.com/forgerun/forgerun/internal/testkit"
)

// beParent is the helper process: it starts both servers, prints their URLs and
// pids, and waits to be killed.
func beParent(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := StartPostgres(ctx, PostgresOptions{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	r, err := StartRedis(ctx, RedisOptions{Dir: filepath.Join(dir, "redis")})
	if err != nil {
		return errors.Join(err, p.Stop(Immediate))
	}
	endThreads()
	if os.Getenv("DEVSTACK_TEST_PAUSE_REDIS") != "" {
		if err := r.Pause(); err != nil {
			return err
		}
	}
	fmt.Println(p.URL(), p.PID(), r.URL(), r.PID())
	select {}
}

// endThreads ends every thread that the runtime can spare, as may happen in any
// Go program. A server must not take that for its parent's end.
func endThreads() {
	var together, all sync.WaitGroup
	const threads = 64
	together.Add(threads)
	for range threads {
		all.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			together.Done()
			together.Wait() // so that each has a thread of its own
		})
	}
	all.Wait()
}

// requirePrivate checks that a server is out of the terminal's reach, and sees nothing of this process's environment.
func requirePrivate(t *testing.T, pid int) {
	t.Helper()
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group, "a process group of its own")
	if runtime.GOOS != "linux" {
		return // no /proc
	}
	require.NotEmpty(t, os.Getenv("HOME"))
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	require.NoError(t, err)
	require.NotContains(t, string(env), "HOME=")
}

func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a child with its parent; elsewhere the next start does")
	}
	for _, how := range []string{"", "DEVSTACK_TEST_PAUSE_REDIS=1", "at once"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Dir(postgresDir(t))
			parent := startParent(t, dir, how)
			execSQL(t, parent.postgresURL, "CREATE TABLE kept AS SELECT 'yes' AS value")
			family := append(childrenOf(t, parent.postgresPID), parent.postgresPID, parent.redisPID)
			family = slices.DeleteFunc(family, process.HasEnded) // the session of the statement may be among its children
			require.Subset(t, family, []int{parent.postgresPID, parent.redisPID})
			require.Greater(t, len(family), 4, "Postgres' own processes count too")

			require.NoError(t, parent.cmd.Process.Kill())
			_ = parent.cmd.Wait()
			if how != "at once" { // the next parent may come while the servers of the killed one still end
				for _, pid := range family {
					testkit.Eventually(t, "all children are gone", func() bool { return process.HasEnded(pid) })
				}
			}
			p := startPostgres(t, PostgresOptions{Dir: filepath.Join(dir, "postgres")})
			require.Equal(t, "yes", queryText(t, p.URL(), "SELECT value FROM kept"))
			startRedis(t, RedisOptions{Dir: filepath.Join(dir, "redis")})
		})
	}
}

// parentProcess is a running helper process and what it printed.
type parentProcess struct {
	cmd         *exec.Cmd
	postgresURL string
	postgresPID int
	redisURL    string
	redisPID    int
}

func startParent(t *testing.T, dir string, env ...string) parentProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), parentEnv+"="+dir), env...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the parent prints a line")
	words := strings.Fields(lines.Text())
	require.Len(t, words, 4, lines.Text())
	postgresPID, err := strconv.Atoi(words[1])
	require.NoError(t, err)
	redisPID, err := strconv.Atoi(words[3])
	require.NoError(t, err)
	return parentProcess{cmd, words[0], postgresPID, words[2], redisPID}
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var children []int
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			children = append(children, child)
		}
	}
	return children
}
