package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

type shiftedClock struct {
	t    *testing.T
	file string
}

// newStackWithClock makes the test parallel. The stack has its own Postgres server, with a clock that is ahead by `seconds`.
func newStackWithClock(t *testing.T, seconds int) (*stack, shiftedClock) {
	t.Helper()
	t.Parallel()
	libraries, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	require.NoError(t, err)
	if len(libraries) == 0 {
		t.Skip("this needs the Debian package faketime")
	}
	clock := shiftedClock{t, filepath.Join(tempDir(t), "clock")}
	clock.shift(seconds)
	postgres := repotest.Server(t, "LD_PRELOAD="+libraries[0], "FAKETIME_TIMESTAMP_FILE="+clock.file, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1")
	return newStackOn(t, postgres.URL(), env{"FORGERUN_RETRY_BACKOFF_BASE": "1s", "FORGERUN_RETRY_BACKOFF_MAX": "1s"}), clock
}

func (c shiftedClock) shift(seconds int) {
	c.t.Helper()
	next := c.file + ".next"
	require.NoError(c.t, os.WriteFile(next, fmt.Appendf(nil, "%+d\n", seconds), 0o644))
	require.NoError(c.t, os.Rename(next, c.file))
}

func (s *stack) deferredBy(wait time.Duration) string {
	s.t.Helper()
	at := s.text(`SELECT to_char((now() + $1::interval) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`, wait)
	return `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","auto_retry":true,"execution_at":"` + at + `"}`
}

// autoRetry is the request for a job that fails once and succeeds after its backoff.
var autoRetry = execute("RETRY_ON_FAIL", `"auto_retry":true`)

func (s *stack) requireNotEarly(ids []string) {
	s.t.Helper()
	require.Zero(s.t, s.count(`SELECT count(*) FROM jobs WHERE job_id = ANY($1::uuid[]) AND started_at < run_at`, ids), "started too early")
}

// Postgres' clock is a minute ahead of the machine's clock, or a minute behind. No job starts too early or a minute late.
func TestJobsStartInTimeWithWrongMachineClocks(t *testing.T) {
	for name, seconds := range map[string]int{"Postgres is ahead": 60, "Postgres is behind": -60} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStackWithClock(t, seconds)
			api := s.startLeader()
			u := s.newUser(api)
			s.startWorker()
			ids := u.submitMany(api, 5, s.deferredBy(time.Second))
			ids = append(ids, u.submitMany(api, 5, autoRetry)...)
			ids = append(ids, u.submitMany(api, 5, execute("PAYLOAD_SMALL"))...)
			s.await("SUCCEEDED", ids...)
			s.requireNotEarly(ids)
			require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE started_at >= run_at + interval '1 minute'`), "a job started late")
			s.checkInvariants()
		})
	}
}

// Postgres' clock jumps an hour ahead and stays there. Jobs that were submitted before and after the jump start on time by Postgres'
// clock.
func TestPostgresClockGoesAheadAndStays(t *testing.T) {
	s, clock := newStackWithClock(t, 0)
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	ids := u.submitMany(api, 5, s.deferredBy(30*time.Minute))
	clock.shift(3600)
	s.await("SUCCEEDED", ids...)
	ids = append(ids, u.submitMany(api, 5, execute("PAYLOAD_SMALL"))...)
	ids = append(ids, u.submitMany(api, 5, s.deferredBy(time.Second))...)
	ids = append(ids, u.submitMany(api, 5, autoRetry)...)
	s.await("SUCCEEDED", ids...)
	s.requireNotEarly(ids)
	s.checkInvariants()
}

// While Postgres' clock is set back, queued jobs are not due, so they wait. They run when the clock is right again.
func TestPostgresClockGoesBackForAWhile(t *testing.T) {
	s, clock := newStackWithClock(t, 0)
	// The return to the right time ends all leases at once, so jobs that run at that moment fail and are retried.
	small := execute("PAYLOAD_SMALL", `"auto_retry":true`)
	api := s.startLeader()
	u := s.newUser(api)
	ids := u.submitMany(api, 20, small)
	ids = append(ids, u.submitMany(api, 5, s.deferredBy(time.Second))...)
	s.awaitRelayed(ids)
	clock.shift(-3600)
	s.startWorker()
	during := u.submitMany(api, 20, small)
	s.await("SUCCEEDED", during...)
	ids = append(ids, during...)
	ids = append(ids, u.submitMany(api, 5, s.deferredBy(time.Second))...)
	clock.shift(0)
	ids = append(ids, u.submitMany(api, 5, autoRetry)...)
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}
