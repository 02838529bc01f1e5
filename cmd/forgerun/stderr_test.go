package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startUnread starts a worker whose standard error is a pipe that nobody reads, and
// gives the end to read from.
func (s *stack) startUnread(environment ...env) (*proc, *os.File) {
	s.t.Helper()
	self, err := os.Executable()
	require.NoError(s.t, err)
	reader, writer, err := os.Pipe()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = reader.Close() })
	all := merge(s.env, merge(environment...))
	p := newProc(s.t, self, all, "worker")
	p.cmd.Stderr = writer
	p.run(all, s.knownSecrets)
	require.NoError(s.t, writer.Close())
	s.mu.Lock()
	s.procs = append(s.procs, p)
	s.mu.Unlock()
	eventually(s.t, "the worker is registered", func() bool {
		return s.count(`SELECT count(*) FROM workers WHERE state = 'ALIVE'`) == 1
	})
	return p, reader
}

// Jobs run, end, and the worker stops in order, although its log fills the pipe.
func TestWorkerWhoseLogIsNotRead(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker, log := s.startUnread()
	ids := u.submitMany(api, 300, execute("SUCCESS_FAST")) // three lines each, of 400 bytes
	s.await("SUCCEEDED", ids...)
	worker.terminate()
	require.Zero(t, worker.exitCode())
	text := make([]byte, 64<<10)
	n, err := log.Read(text)
	require.NoError(t, err)
	require.Positive(t, strings.Count(string(text[:n]), "job transition"))
	s.checkInvariants()
}

// The reader of the log dies: jobs run on, and SIGTERM drains.
func TestWorkerWhoseLogReaderDies(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.02"})
	api := s.startLeader()
	u := s.newUser(api)
	worker, log := s.startUnread()
	require.NoError(t, log.Close())
	s.await("SUCCEEDED", u.submitMany(api, 20, execute("SUCCESS_FAST"))...)
	last := u.submit(api, execute("SUCCESS_SLOW")) // 1.8 s
	s.await("RUNNING", last)
	worker.terminate()
	require.Zero(t, worker.exitCode())
	s.await("SUCCEEDED", last)
	s.checkInvariants()
}
