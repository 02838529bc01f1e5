package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

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

// If all jobs ended before FLUSHALL, the test submits more jobs and tries again.
func TestFlushAllWhileJobsRun(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.02"}) // PAYLOAD_SMALL takes 40 ms
	var ids []string
	left := 0
	for round := 0; round < 10 && left == 0; round++ {
		before := s.countJobs(ids, "SUCCEEDED")
		ids = append(ids, u.submitMany(api, 300, execute("PAYLOAD_SMALL"))...)
		eventually(t, "some have run", func() bool { return s.countJobs(ids, "SUCCEEDED") > before+20 })
		require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		left = len(ids) - s.countJobs(ids, "SUCCEEDED")
	}
	require.NotZero(t, left, "jobs that had not run when the queue was emptied")
	s.await("SUCCEEDED", ids...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`), "no job was started twice")
	s.checkInvariants()
}

// Promise: contract 14d
func TestRedisDownDuringSubmissions(t *testing.T) {
	s, api, u := newWorking(t)
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

// A crashed Redis loses its last writes: finished tasks reappear, and waiting tasks are gone.
func TestRedisCrashLosesLastWrites(t *testing.T) {
	s, api, u := newService(t)
	done := u.submitMany(api, 50, execute("PAYLOAD_SMALL"))
	s.awaitRelayed(done)
	path := s.appendOnlyFile()
	info, err := os.Stat(path)
	require.NoError(t, err)
	worker := s.startWorker()
	s.await("SUCCEEDED", done...)
	worker.stop()
	ids := u.submitMany(api, 100, execute("PAYLOAD_SMALL"))
	s.awaitRelayed(ids)
	require.Len(t, s.tasks(), 100)

	require.NoError(t, s.redis.Kill())
	require.NoError(t, os.Truncate(path, info.Size()))
	api.pause() // a running api would repair the loss at once
	require.NoError(t, s.redis.Start(t.Context()))
	resurrected := s.tasks()
	require.Len(t, resurrected, 50)
	for _, id := range done {
		require.Contains(t, resurrected, id+":1")
	}
	api.resume()

	s.startWorker()
	s.await("SUCCEEDED", ids...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1`), "the tasks that reappeared started no job")
	s.checkInvariants()
}

func (s *stack) appendOnlyFile() string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.redisDir, "data", "appendonlydir", "*.incr.aof"))
	require.NoError(s.t, err)
	require.Len(s.t, files, 1)
	return files[0]
}

// While Redis refuses or delays writes, submissions are still fast. Afterwards the queue recovers automatically.
func TestRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string][2]string{
		"out of memory": {"CONFIG SET maxmemory 1mb", "CONFIG SET maxmemory 0"},
		"held up":       {"CLIENT PAUSE 600000 WRITE", "CLIENT UNPAUSE"},
	} {
		t.Run(name, func(t *testing.T) {
			s, api, u := newWorking(t)
			s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
			do := func(command string) {
				var words []any
				for word := range strings.FieldsSeq(command) {
					words = append(words, word)
				}
				require.NoError(t, s.rdb.Do(t.Context(), words...).Err())
			}
			do(commands[0])
			ids := u.submitMany(api, 100, execute("PAYLOAD_SMALL"))
			do(commands[1])
			s.await("SUCCEEDED", ids...)
			s.checkInvariants()
		})
	}
}

func TestRedisAwayWhileJobsRun(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.02"}) // SUCCESS_SLOW takes 1.8 s
	ids := u.submitMany(api, 4, execute("SUCCESS_SLOW"))
	s.await("RUNNING", ids...)
	require.NoError(t, s.redis.Kill())
	s.await("SUCCEEDED", ids...)
	require.NoError(t, s.redis.Start(t.Context()))
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`))
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	s.checkInvariants()
}

// The test delivers each task three times and out of order. Tasks of deferred jobs come too early.
func TestTasksDuplicatedReorderedAndEarly(t *testing.T) {
	s, api, u := newService(t)
	ids := u.submitMany(api, 50, execute("PAYLOAD_SMALL"))
	for range 10 {
		ids = append(ids, u.submit(api, deferred(5*time.Second)))
	}
	s.awaitRelayed(ids)
	connection := asynq.RedisClientOpt{Addr: strings.TrimSuffix(strings.TrimPrefix(s.redis.URL(), "redis://"), "/0")}
	inspector, client := asynq.NewInspector(connection), asynq.NewClient(connection)
	t.Cleanup(func() { require.NoError(t, inspector.Close()); require.NoError(t, client.Close()) })
	pending, err := inspector.ListPendingTasks("jobs", asynq.PageSize(100))
	require.NoError(t, err)
	require.Len(t, pending, 50)
	scheduled, err := inspector.ListScheduledTasks("jobs", asynq.PageSize(100))
	require.NoError(t, err)
	require.Len(t, scheduled, 10)
	var duplicates []func() error
	for _, task := range append(pending, scheduled...) {
		for _, copied := range []string{"a", "b"} {
			duplicates = append(duplicates, func() error {
				_, err := client.Enqueue(asynq.NewTask(task.Type, task.Payload), asynq.TaskID(task.ID+copied), asynq.Queue("jobs"),
					asynq.MaxRetry(1000))
				return err
			})
		}
	}
	rand.Shuffle(len(duplicates), func(i, j int) { duplicates[i], duplicates[j] = duplicates[j], duplicates[i] })
	for _, enqueue := range duplicates {
		require.NoError(t, enqueue())
	}
	worker := s.startWorker()
	s.await("SUCCEEDED", ids...)
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`))
	eventually(t, "the duplicates are dropped and counted", func() bool { return worker.metric(`tasks_dropped_total{reason="stale"}`) >= 100 })
	s.checkInvariants()
}
