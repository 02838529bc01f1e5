package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/devstack"
)

// Whatever is done to the processes behind it, the port stays, and a client gets all its jobs to their ends.
func TestDevWithChaos(t *testing.T) {
	t.Parallel()
	dir, err := devstack.MkdirTemp("forgerun-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	require.NoError(t, err)
	address, err := devstack.FreeAddress()
	require.NoError(t, err)
	dev := exec.CommandContext(t.Context(), self, "dev", "--chaos", "kill=1s,flush=2s,cut=1s", "--seed", "3")
	dev.Env = []string{
		asProgram + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "FORGERUN_DATA_DIR=" + dir, "FORGERUN_HTTP_ADDR=" + address,
		"FORGERUN_TIME_SCALE=0.1",
	}
	dev.SysProcAttr = dieWithTest()
	stderr := newOutput()
	dev.Stderr = stderr
	stdout, err := dev.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, dev.Start())
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	key := ""
	for line := range lines {
		if found := regexp.MustCompile(`API key +(\S+)`).FindStringSubmatch(line); found != nil {
			key = found[1]
			break
		}
	}
	require.NotEmpty(t, key, stderr.tail())

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.New(client.Config{URL: "http://" + address, Key: key, MaxTries: 20})
	require.NoError(t, err)
	faults := map[string]bool{}
	for began := time.Now(); time.Since(began) < 5*time.Second || len(faults) < 2; {
		require.NoError(t, ctx.Err(), "faults so far: %v", faults)
		accepted, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST"})
		require.NoError(t, err)
		j, err := c.Wait(ctx, accepted.JobID)
		require.NoError(t, err)
		require.True(t, j.Final(), j.State) // or its worker was lost
		for more := true; more; {
			select {
			case line := <-lines:
				if word := strings.Fields(line); len(word) > 2 {
					faults[word[1]] = true
				}
			default:
				more = false
			}
		}
	}
	require.NoError(t, dev.Process.Signal(syscall.SIGTERM))
	for range lines { // to its end
	}
	require.NoError(t, dev.Wait(), stderr.tail())
	for _, name := range []string{"postgres", "redis"} {
		_, err := os.Stat(dir + "/chaos/" + name)
		require.ErrorIs(t, err, os.ErrNotExist, "nothing is left but logs")
	}
}

// What cannot be done is said at once.
func TestDevChaosUsage(t *testing.T) {
	t.Parallel()
	none := func(string) string { return "" }
	stores := func(name string) string {
		return map[string]string{"FORGERUN_DATABASE_URL": "postgres://x/y", "FORGERUN_REDIS_URL": "redis://x"}[name]
	}
	network := func(name string) string { return map[string]string{"FORGERUN_HTTP_ADDR": "0.0.0.0:1"}[name] }
	for want, test := range map[string]struct {
		getenv func(string) string
		args   []string
		code   int
	}{
		`there is no fault "hat"`:      {none, []string{"--chaos", "hat=1s"}, 2},
		"the mean interval of kill is": {none, []string{"--chaos", "kill=1ms"}, 2},
		"to its own Postgres and":      {stores, []string{"--chaos", "kill=1s"}, 1},
		"listens on this machine":      {network, []string{"--chaos", "kill=1s"}, 1},
		"does not know":                {none, []string{"now"}, 2},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"dev"}, test.args...), test.getenv, nil, &stdout, &stderr)
		require.Equal(t, test.code, code, stderr.String())
		require.Contains(t, stderr.String(), want)
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"dev", "--help"}, none, nil, &stdout, &stderr))
	require.Contains(t, stdout.String(), "redis-pause")
}
