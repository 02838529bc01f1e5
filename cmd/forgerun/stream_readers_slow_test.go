//go:build slow

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With common SSE libraries, a client misses no event when an api restarts. This holds even if the client has received no event yet.
func TestReadersOfStreamsMissNothing(t *testing.T) {
	s := newStack(t)
	other := s.startLeader()
	s.startWorker()
	program := filepath.Join(t.TempDir(), "streams")
	runIn(t, "../../tools", nil, "go", "build", "-o", program, "./streams")
	for name, command := range map[string][]string{
		"eventsource":        {"node", documentTools + "/streams.mjs", "eventsource"},
		"fetch-event-source": {"node", documentTools + "/streams.mjs", "fetch-event-source"},
		"eventsource-parser": {"node", documentTools + "/streams.mjs", "eventsource-parser"},
		"r3labs/sse":         {program},
		"Python's urllib":    {"python3", documentTools + "/streams.py"},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", quiet", true: ", busy"}[busy], func(t *testing.T) {
				if command[0] == "node" {
					requireNodePackages(t, documentTools)
				} else if command[0] == "python3" {
					requirePython(t)
				}
				api := s.startAPI()
				u := s.newUser(other)
				read := exec.CommandContext(t.Context(), command[0], command[1:]...)
				read.Env = append(os.Environ(), "FORGERUN_URL="+api.url, "FORGERUN_API_KEY="+u.key)
				read.WaitDelay = time.Second
				out, err := read.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, read.Start())
				t.Cleanup(func() {
					_ = read.Process.Kill()
					_ = read.Wait()
				})
				names := lines(bufio.NewScanner(out))
				require.Equal(t, []string{"position"}, following(t, names, 1))

				life := []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}
				if busy {
					u.submitAndAwait(other, "SUCCEEDED", execute("SUCCESS_FAST"))
					require.Equal(t, life, following(t, names, len(life)))
				}
				api.stop()
				u.submitAndAwait(other, "SUCCEEDED", execute("SUCCESS_FAST"))
				again := s.startAPI(env{"FORGERUN_HTTP_ADDR": strings.TrimPrefix(api.url, "http://")})
				require.Equal(t, life, following(t, names, len(life)))
				again.stop()
			})
		}
	}
}

func lines(s *bufio.Scanner) <-chan string {
	all := make(chan string)
	go func() {
		defer close(all)
		for s.Scan() {
			all <- s.Text()
		}
	}()
	return all
}

// following returns the names of the next n events. With n > 1, it skips position events.
func following(t *testing.T, names <-chan string, n int) (all []string) {
	t.Helper()
	for len(all) < n {
		select {
		case name, open := <-names:
			require.True(t, open, "the reader has ended")
			if name != "position" || n == 1 {
				all = append(all, name)
			}
		case <-time.After(patience):
			require.FailNow(t, "no event came", "after %v", all)
		}
	}
	return all
}
