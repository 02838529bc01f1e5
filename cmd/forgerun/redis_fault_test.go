package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon is how soon lost tasks must be made up for: seconds, and what a
// busy machine may take on top.
const soon = 30 * time.Second

func TestFlushAllWithABacklog(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	ids := u.submitMany(api, 300, execute("PAYLOAD_SMALL"))
	s.awaitRelayed(ids)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	flushed := time.Now()
	s.startWorker()
	s.await("SUCCEEDED", ids...)
	require.Less(t, time.Since(flushed), soon)
	api.logged("the queue was emptied or replaced; all waiting jobs are dispatched anew", `"epoch":3`)
	s.checkInvariants()
}

// awaitRelayed waits until each of the jobs has a task in the queue.
func (s *stack) awaitRelayed(ids []string) {
	s.t.Helper()
	eventually(s.t, "the jobs are in the queue", func() bool {
		there := map[string]bool{}
		for name := range s.tasks() {
			id, _, _ := strings.Cut(name, ":")
			there[id] = true
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return !there[id] })
	})
}

// Of a backlog only a window is in Redis, also after that was emptied. The rest
// follows from Postgres, in order.
func TestDispatchWindow(t *testing.T) {
	t.Parallel()
	const window = 20
	s := newStack(t, env{"FORGERUN_DISPATCH_WINDOW": strconv.Itoa(window)})
	api := s.startLeader()
	u := s.newUser(api)
	ids := u.submitMany(api, 300, execute("PAYLOAD_SMALL"))
	full := func() bool { return len(s.tasks()) >= window }
	eventually(t, "the window is full", full)
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
	eventually(t, "the window is full again", full)
	require.Less(t, len(s.tasks()), 2*window)
	s.startWorker()
	s.await("SUCCEEDED", ids...)
	late := s.count(`SELECT max(abs(a - b)) FROM (SELECT row_number() OVER (ORDER BY run_at, job_id) AS a,
		row_number() OVER (ORDER BY assigned_at, job_id) AS b FROM jobs WHERE job_id = ANY($1::uuid[])) o`, ids)
	require.Less(t, late, 3*window, "first come, first served, but for those under way at once")
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR dispatch_epoch IS NOT NULL`),
		"nothing is written about tasks that are not lost")
	s.checkInvariants()
}

// Redis may take longer to empty itself than the jobs to run, on a busy disk: then
// more of them are submitted.
func TestFlushAllWhileJobsRun(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.02"}) // PAYLOAD_SMALL takes 40 ms
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	var ids []string
	var flushed time.Time
	left := 0
	for round := 0; round < 10 && left == 0; round++ {
		before := s.countJobs(ids, "SUCCEEDED")
		ids = append(ids, u.submitMany(api, 300, execute("PAYLOAD_SMALL"))...)
		eventually(t, "some have run", func() bool { return s.countJobs(ids, "SUCCEEDED") > before+20 })
		require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		flushed = time.Now()
		left = len(ids) - s.countJobs(ids, "SUCCEEDED")
	}
	require.NotZero(t, left, "jobs that had not run when the queue was emptied")
	s.await("SUCCEEDED", ids...)
	require.Less(t, time.Since(flushed), soon)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`), "running jobs are left alone")
	s.checkInvariants()
}

func TestRedisDownDuringSubmissions(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	require.NoError(t, s.redis.Kill())
	ids := u.submitMany(api, 100, execute("PAYLOAD_SMALL"))
	ready := u.call(api, "GET", "/readyz", "")
	require.Equal(t, 200, ready.status, "the api works without Redis")
	require.Equal(t, "degraded", ready.text("status"))
	require.Zero(t, s.countJobs(ids, "SUCCEEDED"))
	require.NoError(t, s.redis.Start(t.Context()))
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

// The last writes of a crashed Redis are lost: tasks that were done come back,
// tasks that were to do are gone.
func TestRedisCrashThatLosesItsLastWrites(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	done := u.submitMany(api, 50, execute("PAYLOAD_SMALL"))
	s.awaitRelayed(done)
	path := s.appendOnlyFile()
	info, err := os.Stat(path)
	require.NoError(t, err)
	worker := s.startWorker()
	s.await("SUCCEEDED", done...)
	worker.terminate()
	require.Zero(t, worker.exitCode())
	ids := u.submitMany(api, 100, execute("PAYLOAD_SMALL"))
	s.awaitRelayed(ids)
	require.Len(t, s.tasks(), 100)

	require.NoError(t, s.redis.Kill())
	require.NoError(t, os.Truncate(path, info.Size()))
	api.pause() // it would make up for the loss at once
	require.NoError(t, s.redis.Start(t.Context()))
	resurrected := s.tasks()
	require.Len(t, resurrected, 50)
	for _, id := range done {
		require.Contains(t, resurrected, id+":1:0")
	}
	api.resume()

	s.startWorker()
	s.await("SUCCEEDED", ids...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1`), "resurrected tasks ran nothing twice")
	s.checkInvariants()
}

// appendOnlyFile is where Redis writes what it was told.
func (s *stack) appendOnlyFile() string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.redisDir, "data", "appendonlydir", "*.incr.aof"))
	require.NoError(s.t, err)
	require.Len(s.t, files, 1)
	return files[0]
}

func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	require.ErrorContains(t, s.rdb.Set(t.Context(), "x", "y", 0).Err(), "OOM")
	ids := u.submitMany(api, 50, execute("PAYLOAD_SMALL"))
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

func TestRedisThatHoldsUpWrites(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	require.NoError(t, s.rdb.Do(t.Context(), "CLIENT", "PAUSE", "600000", "WRITE").Err())
	ids := u.submitMany(api, 100, execute("PAYLOAD_SMALL")) // before the pause is over, or the test times out
	require.NoError(t, s.rdb.Do(t.Context(), "CLIENT", "UNPAUSE").Err())
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

// asynq gives a handler up when Redis has been away for 30 s. The jobs must not
// notice.
func TestRedisAwayFor40SecondsWhileJobsRun(t *testing.T) {
	t.Parallel()
	const away = 40 * time.Second
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.6"}) // SUCCESS_SLOW takes 54 s
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	ids := u.submitMany(api, 4, execute("SUCCESS_SLOW"))
	s.await("RUNNING", ids...)
	require.NoError(t, s.redis.Kill())
	time.Sleep(away) // the length of the outage is what is tested
	require.Equal(t, 4, s.countJobs(ids, "RUNNING"))
	require.NoError(t, s.redis.Start(t.Context()))
	s.await("SUCCEEDED", ids...)
	for _, id := range ids {
		require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	}
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1`))
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	s.checkInvariants()
}
