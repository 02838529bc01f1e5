package main

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestJobStreamGoesOnAfterTheAPIIsKilled(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.2"}) // SUCCESS_NORMAL takes 2 s
	path := "/v1/jobs/" + u.submit(api, execute("SUCCESS_NORMAL")) + "/events"
	stream := u.stream(api, path, "")
	names := frameNames(stream.until("job-running"))
	api.kill()
	for _, f := range stream.rest() { // progress events, which have no id, may still arrive
		require.Empty(t, f.id)
	}
	stream = u.stream(s.startAPI(), path, stream.lastID)
	names = append(names, frameNames(stream.rest())...)
	require.Equal(t, []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}, names)
	s.checkInvariants()
}

func namesByJob(frames []frame) map[string][]string {
	jobs := map[string][]string{}
	for _, f := range frames {
		if f.event == "" {
			continue
		}
		id := f.text("job_id") + f.text("jobId") // outcome documents have jobId
		jobs[id] = append(jobs[id], f.event)
	}
	return jobs
}

func (s *stack) recorded() map[string][]string {
	s.t.Helper()
	jobs := map[string][]string{}
	for _, e := range structs[struct{ ID, Name string }](s, `SELECT job_id::text, translate(event_name, '._', '--')
		FROM events ORDER BY job_id, seq`) {
		jobs[e.ID] = append(jobs[e.ID], e.Name)
	}
	return jobs
}

// A client reads its event stream while jobs run, are canceled and retried, and Redis dies. The connection is cut again and again. Each
// time, the client continues at the other api. The client sees each event once, and the events of each job in order.
func TestClientStreamMissesAndRepeatsNothing(t *testing.T) {
	s := newStack(t, env{"FORGERUN_TIME_SCALE": "0.01"})
	apis := []*proc{s.startLeader(), s.startAPI()}
	u, other := s.newUser(apis[0]), s.newUser(apis[0])
	workers := []*proc{s.startWorker(), s.startWorker()}
	reader := u.stream(apis[0], "/v1/events", "")
	first, ok := reader.next() // the position at which the stream begins
	require.True(t, ok)
	require.NotEmpty(t, first.id)

	kinds := []string{"PAYLOAD_SMALL", "FAIL_IMMEDIATE", "RETRY_ON_FAIL", "SUCCESS_FAST"}
	const jobs = 120
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
	var frames []frame
	complete := func() bool { // all jobs have ended without further retries, and the client has read all events
		return written.Load() && s.count(`SELECT count(*) FROM jobs WHERE client_id = $1 AND `+ended, u.id) == jobs &&
			len(frames) >= s.count(`SELECT count(*) FROM events WHERE client_id = $1`, u.id)
	}
	for {
		for range 5 + rand.IntN(40) {
			if complete() {
				break
			}
			f, ok := reader.next()
			require.True(t, ok, "the server ended the stream")
			if f.event != "position" {
				frames = append(frames, f)
			}
		}
		reader.cut()
		if complete() {
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
	require.Equal(t, want, namesByJob(frames))
	for _, f := range frames {
		require.True(t, json.Valid([]byte(f.data)), f.data)
	}
	for _, w := range workers {
		w.terminate()
	}
	s.checkInvariants()
}

func TestStreamsAndWaitsGoOnWithoutRedis(t *testing.T) {
	s, api, u := newService(t)
	id := u.submit(api, farAway)
	stream := u.stream(api, "/v1/jobs/"+id+"/events", "")
	all := u.stream(api, "/v1/events", "")
	stream.until("job-created")
	require.NoError(t, s.redis.Kill())

	waiting := make(chan answer, 1)
	go func() { waiting <- u.call(api, "GET", "/v1/jobs/"+id, "", "Prefer", "wait=30") }()
	require.Equal(t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "").status)
	require.Equal(t, []string{"job-canceled"}, frameNames(stream.rest()))
	all.until("job-canceled") // the stream may first repeat events from just before the stream's start
	a := <-waiting
	require.Equal(t, "CANCELED", a.text("state"), a.body)
	s.checkInvariants()
}
