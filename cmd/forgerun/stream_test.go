package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestJobStreamGoesOnAfterTheAPIIsKilled(t *testing.T) {
	t.Parallel()
	s := newStack(t, slow) // SUCCESS_NORMAL takes 10 s
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	path := "/v1/jobs/" + u.submit(api, execute("SUCCESS_NORMAL")) + "/events"
	stream := u.stream(api, path, "")
	names := frameNames(stream.until("job-running"))
	api.kill()
	for _, f := range stream.rest() { // progress may still have come
		require.Empty(t, f.id)
	}
	stream = u.stream(s.startAPI(), path, stream.lastID)
	names = append(names, frameNames(stream.rest())...)
	require.Equal(t, []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}, names)
	s.checkInvariants()
}

// told is what a client's stream told of one job, in its order.
func told(frames []frame) map[string][]string {
	jobs := map[string][]string{}
	for _, f := range frames {
		if f.event == "" {
			continue
		}
		id := f.text("job_id") + f.text("jobId") // the second in outcome documents
		jobs[id] = append(jobs[id], f.event)
	}
	return jobs
}

// recorded is the same by the rows.
func (s *stack) recorded() map[string][]string {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `SELECT job_id::text, translate(event_name, '._', '--') FROM events ORDER BY job_id, seq`)
	require.NoError(s.t, err)
	jobs := map[string][]string{}
	for rows.Next() {
		var id, name string
		require.NoError(s.t, rows.Scan(&id, &name))
		jobs[id] = append(jobs[id], name)
	}
	require.NoError(s.t, rows.Err())
	return jobs
}

// A client reads all its events while jobs are run, canceled and retried by
// many hands, and Redis dies. It is cut off again and again, and goes on at
// another process: it sees each event once, and each job's in their order.
func TestClientStreamMissesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.01"})
	apis := []*proc{s.startLeader(), s.startAPI()}
	u, other := s.newUser(apis[0]), s.newUser(apis[0])
	workers := []*proc{s.startWorker(), s.startWorker()}
	reader := u.stream(apis[0], "/v1/events", "")
	first, ok := reader.next() // the position at which the stream begins
	require.True(t, ok)
	require.NotEmpty(t, first.id)

	kinds := []string{"PAYLOAD_SMALL", "FAIL_IMMEDIATE", "RETRY_ON_FAIL", "SUCCESS_FAST"}
	const jobs = 240
	var writers errgroup.Group
	writers.SetLimit(16)
	var written atomic.Bool
	go func() {
		for i := range jobs {
			writers.Go(func() error {
				api := apis[i%2]
				id := u.submit(api, execute(kinds[i%4], `"auto_retry":`+strconv.FormatBool(i%3 == 0)))
				other.submit(api, execute("SUCCESS_FAST"))
				switch {
				case i%5 == 0:
					u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "")
				case i%7 == 0:
					u.call(api, "POST", "/v1/jobs/"+id+"/retry", "")
				}
				return nil
			})
			if i == jobs/2 {
				_ = s.redis.Kill()
				_ = s.redis.Start(s.ctx())
			}
		}
		_ = writers.Wait()
		written.Store(true)
	}()
	settled := func() bool { // and nobody is about to retry one
		return written.Load() && s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND finished_at IS NOT NULL`, u.id) == jobs
	}
	var frames []frame
	for total := 1; ; {
		for range 5 + rand.IntN(40) {
			if settled() {
				if total = s.count(`SELECT count(*) FROM events WHERE client_id = $1`, u.id); len(frames) >= total {
					break
				}
			}
			f, ok := reader.next()
			require.True(t, ok, "the stream ended by itself")
			if f.event != "" {
				frames = append(frames, f)
			}
		}
		reader.cut()
		if settled() && len(frames) >= total {
			break
		}
		reader = u.stream(apis[rand.IntN(2)], "/v1/events", reader.lastID)
		require.Equal(t, http.StatusOK, reader.status)
	}
	want := s.recorded()
	maps.DeleteFunc(want, func(id string, _ []string) bool {
		return s.count(`SELECT count(*) FROM jobs WHERE job_id = $1 AND client_id = $2`, id, u.id) == 0
	})
	require.Len(t, want, jobs)
	require.Equal(t, want, told(frames))
	for _, f := range frames {
		requireJSON(t, f.data)
	}
	for _, w := range workers {
		w.terminate()
	}
	s.checkInvariants()
}

func TestStreamsAndWaitsGoOnWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	u := s.newUser(api)
	id := u.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	stream := u.stream(api, "/v1/jobs/"+id+"/events", "")
	all := u.stream(api, "/v1/events", "")
	stream.until("job-created")
	require.NoError(t, s.redis.Kill())

	waiting := make(chan answer, 1)
	go func() { waiting <- u.call(api, "GET", "/v1/jobs/"+id, "", "Prefer", "wait=30") }()
	require.Equal(t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "").status)
	require.Equal(t, []string{"job-canceled"}, frameNames(stream.rest()))
	all.until("job-canceled") // what came shortly before it may be shown as well
	a := <-waiting
	require.Equal(t, "CANCELED", a.text("state"), a.body)
	s.checkInvariants()
}

func TestProgressIsAbsentWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newStack(t) // SUCCESS_SLOW would take 90 s
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(env{"FORGERUN_TIME_SCALE": "1"})
	id := u.submit(api, execute("SUCCESS_SLOW"))
	eventually(t, "progress is shown", func() bool { return u.get(api, id).value("progress.percentage") != nil })
	require.NoError(t, s.redis.Kill())
	a := u.get(api, id)
	require.Equal(t, "RUNNING", a.text("state"))
	require.Nil(t, a.value("progress"), "absent, not wrong: %s", a.body)
	require.Equal(t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "").status)
	worker.terminate()
	require.Zero(t, worker.exitCode())
	s.checkInvariants()
}

func TestWaitingForTheEnd(t *testing.T) {
	t.Parallel()
	s := newStack(t, slow) // SUCCESS_FAST takes 1 s, SUCCESS_SLOW 90 s
	api := s.startLeader()
	u := s.newUser(api)
	s.startWorker()
	done := u.trySubmit(api, execute("SUCCESS_FAST"), "Prefer", "respond-async, wait=20")
	require.Equal(t, http.StatusOK, done.status, done.body)
	require.Equal(t, "SUCCEEDED", done.text("state"), done.body)
	require.Contains(t, done.header.Get("Preference-Applied"), "wait=20")
	require.Equal(t, "/v1/jobs/"+done.text("job_id"), done.header.Get("Location"))

	started := time.Now()
	long := u.trySubmit(api, execute("SUCCESS_SLOW"), "Prefer", "wait=1")
	require.Equal(t, http.StatusAccepted, long.status, long.body)
	require.GreaterOrEqual(t, time.Since(started), time.Second)
	s.await("RUNNING", long.text("job_id"))

	// Whoever waits hears of the change, and of nothing else.
	var waiters errgroup.Group
	for range 50 {
		waiters.Go(func() error {
			a := u.call(api, "GET", "/v1/jobs/"+long.text("job_id"), "", "Prefer", "wait=30")
			if a.status != http.StatusOK || a.text("state") != "CANCELED" {
				return fmt.Errorf("%d %s", a.status, a.body)
			}
			return nil
		})
	}
	eventually(t, "all wait", func() bool { return api.metric(`watchers{kind="job"}`) == 50 })
	u.call(api, "POST", "/v1/jobs/"+long.text("job_id")+"/cancel", "")
	require.NoError(t, waiters.Wait())
	s.checkInvariants()
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_MAX_STREAMS": "3", "FORGERUN_MAX_STREAMS_PER_CLIENT": "2"})
	api := s.startLeader()
	u, other := s.newUser(api), s.newUser(api)
	open := []*eventStream{u.stream(api, "/v1/events", ""), u.stream(api, "/v1/events", "")}
	a := u.call(api, "GET", "/v1/events", "", "Accept", "text/event-stream")
	a.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.Nil(t, a.value("retryAfter"), "how often to ask is not how soon to resubmit (draft section 6.7)")
	open = append(open, other.stream(api, "/v1/events", ""))
	other.call(api, "GET", "/v1/events", "", "Accept", "text/event-stream").requireProblem(t, http.StatusServiceUnavailable,
		"RFA_EXEC_QUEUE_FULL")
	for _, stream := range open {
		stream.cut()
	}
	eventually(t, "seats are free again", func() bool {
		again := u.stream(api, "/v1/events", "")
		again.cut()
		return again.status == http.StatusOK
	})
}

// Five thousand clients that listen to a quiet service.
func TestIdleStreamsAreCheap(t *testing.T) {
	t.Parallel()
	const streams, limitKB = 5000, 200 * 1024
	// an event wakes all of them
	s := newStack(t, patient, env{"FORGERUN_MAX_STREAMS_PER_CLIENT": "10000", "FORGERUN_RATE_LIMIT_PER_MINUTE": "10000000"})
	api := startProgram(t, buildProgram(t), s.env, s.knownSecrets, "api")
	api.waitAPI()
	u := s.newUser(api)
	before := residentKB(t, api.cmd.Process.Pid)
	open := make([]*eventStream, streams)
	var group errgroup.Group
	group.SetLimit(32)
	for i := range open {
		group.Go(func() error {
			open[i] = u.stream(api, "/v1/events", "")
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for _, stream := range open {
		require.Equal(t, http.StatusOK, stream.status)
		f, ok := stream.next()
		require.True(t, ok)
		require.NotEmpty(t, f.id)
	}
	used := residentKB(t, api.cmd.Process.Pid)
	t.Logf("%d idle streams: %d MB resident, %d MB before them, %.1f KB each", streams, used>>10, before>>10, float64(used-before)/streams)
	require.Less(t, used, limitKB)
	id := u.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	for _, i := range []int{0, streams / 2, streams - 1} {
		got := open[i].until("job-created")
		require.Equal(t, id, got[len(got)-1].text("job_id"), "they do hear what happens")
	}
}

// residentKB is the resident memory of a process, in KiB.
func residentKB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	require.NoError(t, err)
	lines := strings.Split(string(status), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "VmRSS:") })
	require.GreaterOrEqual(t, i, 0)
	kb, err := strconv.Atoi(strings.Fields(lines[i])[1])
	require.NoError(t, err)
	return kb
}
