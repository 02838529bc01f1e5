package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type clockState struct {
	Now    time.Time
	Rate   float64
	Frozen bool
}

func (u *user) clock(api *proc) clockState {
	u.s.t.Helper()
	return parsed[clockState](u.s.t, u.call(api, "GET", "/v1/testbed/clock", "").body)
}

func (u *user) moveClock(api *proc, body string, headers ...string) clockState {
	u.s.t.Helper()
	return parsed[clockState](u.s.t, u.expect(api, http.StatusOK, "POST", "/v1/testbed/clock", body, headers...).body)
}

func (s *stack) eventTimes(id string) map[string]time.Time {
	s.t.Helper()
	times := map[string]time.Time{}
	for _, e := range structs[struct {
		Name string
		At   time.Time
	}](s, `SELECT event_name, occurred_at FROM events WHERE job_id = $1`, id) {
		times[e.Name] = e.At.UTC()
	}
	return times
}

func (s *stack) state(id string) string {
	return s.text(`SELECT state FROM jobs WHERE job_id = $1`, id)
}

func customAt(at time.Time) string {
	return fmt.Sprintf(`{"type":"DEFERRED","execution_at":%q,"work_kind":"CUSTOM","params":{"behavior":{}}}`,
		at.UTC().Format(time.RFC3339Nano))
}

// A frozen clock is frozen in all processes. After a request that moves the clock, all jobs that became due are QUEUED. The events of
// these jobs occur at the due times. The clock survives a restart. A process without the test bed refuses to start if the clock was
// moved.
func TestClockMoves(t *testing.T) {
	s, api, u := newService(t, testBed)
	require.False(t, u.clock(api).Frozen)

	frozen := u.moveClock(api, `{"freeze":true}`)
	require.True(t, frozen.Frozen)
	require.Equal(t, frozen.Now, u.clock(api).Now)
	other := s.startAPI()
	require.Equal(t, frozen.Now, u.clock(other).Now, "all processes have the same clock")

	due := frozen.Now.Add(36 * time.Hour)
	scheduled := u.submit(other, customAt(due))
	later := u.submit(api, customAt(due.Add(24*time.Hour)))
	now := u.submit(api, custom(`{}`))
	var hourly []string
	for hour := range 48 {
		hourly = append(hourly, customAt(frozen.Now.Add(time.Duration(hour+1)*time.Hour)))
	}
	many := u.submitBatch(api, `{"jobs":[`+strings.Join(hourly, ",")+`]}`)
	require.Equal(t, "CREATED", s.state(scheduled))
	moved := u.moveClock(api, `{"advance":"48h"}`)
	require.Equal(t, frozen.Now.Add(48*time.Hour), moved.Now)
	require.Equal(t, "QUEUED", s.state(scheduled), "no worker runs yet")
	require.Equal(t, "CREATED", s.state(later))
	require.Equal(t, 48, s.count(`SELECT count(*) FROM jobs WHERE batch_id = $1 AND queued_at = execution_at`, many), "all are queued")
	require.Equal(t, due, s.eventTimes(scheduled)["job.queued"], "its due time")

	s.startWorker()
	s.await("SUCCEEDED", scheduled, now)
	require.Equal(t, frozen.Now, s.eventTimes(now)["job.created"])
	require.Equal(t, due, s.eventTimes(scheduled)["job.succeeded"], "the job takes no time")
	s.awaitCount("the hourly jobs end", 48, `SELECT count(*) FROM jobs WHERE batch_id = $1 AND state = 'SUCCEEDED'`, many)
	require.Zero(t, s.count(`SELECT count(*) FROM events e JOIN jobs j USING (job_id) WHERE batch_id = $1
		AND event_name IN ('job.queued', 'job.assigned', 'job.succeeded') AND occurred_at <> execution_at`, many), "each event has its due time")

	u.call(api, "POST", "/v1/testbed/clock", fmt.Sprintf(`{"set":%q}`, frozen.Now.Format(time.RFC3339Nano))).
		requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	set := moved.Now.Add(12 * time.Hour)
	require.Equal(t, set, u.moveClock(api, fmt.Sprintf(`{"set":%q}`, set.Format(time.RFC3339Nano))).Now)
	s.await("SUCCEEDED", later)

	once := u.moveClock(api, `{"advance":"1h"}`, "Idempotency-Key", "an-hour")
	require.Equal(t, once, u.moveClock(other, `{"advance":"1h"}`, "Idempotency-Key", "an-hour"), "the key moves the clock only once")
	api.kill()
	again := s.startAPI()
	require.Equal(t, set.Add(time.Hour), u.clock(again).Now)

	hour := u.submit(again, customAt(u.clock(again).Now.Add(time.Hour)))
	fast := u.moveClock(again, `{"rate":3600}`)
	require.False(t, fast.Frozen)
	s.await("SUCCEEDED", hour)
	require.Equal(t, u.moveClock(again, `{"freeze":true}`).Rate, 3600.0)
	require.Equal(t, u.moveClock(again, `{"freeze":false}`).Rate, 3600.0, "the rate is kept")
	u.moveClock(again, `{"rate":1}`)
	s.checkInvariants()

	stranger := s.start("api", env{"FORGERUN_TESTBED": "false"})
	require.Equal(t, 1, stranger.exitCode(), "without the test bed, it refuses to start")
	require.Contains(t, stranger.log.String(), "FORGERUN_TESTBED=true")
}

// After a jump of the clock, deferred jobs, time limits, backoffs, retries and expiry happen at their due times. If a jump makes several
// steps of a job due, all of them run, and their events have different times.
func TestScheduledWorkFollowsTheClock(t *testing.T) {
	s := newStack(t, testBed, env{
		"FORGERUN_RETRY_BACKOFF_BASE": "10m", "FORGERUN_RETRY_BACKOFF_MAX": "10m", "FORGERUN_MAX_RUNTIME": "60m",
		"FORGERUN_API_KEY_TTL": "720h",
	})
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	start := u.moveClock(api, `{"freeze":true}`).Now

	running := u.submit(api, custom(`{"duration":"30m","emit":[{"name":"half","after":"15m"}]}`))
	over := u.submit(api, execute("RUNS_OVER_TIMEOUT"))
	retried := u.submit(api, custom(`{"duration":"5m","failures":[{"attempts":[1]}]}`, `"auto_retry":true`))
	s.await("RUNNING", running, over, retried)
	u.moveClock(api, `{"advance":"4m"}`)
	require.Equal(t, 3, s.countJobs([]string{running, over, retried}, "RUNNING"))
	u.moveClock(api, `{"advance":"26h"}`)
	s.await("SUCCEEDED", running, retried)
	s.await("FAILED", over)
	times := s.eventTimes(running)
	require.Equal(t, start.Add(15*time.Minute), times["event.emitted"])
	require.Equal(t, start.Add(30*time.Minute), times["job.succeeded"], "it ended at its planned time")
	require.Equal(t, start.Add(60*time.Minute), s.eventTimes(over)["job.failed"], "the execution limit")
	require.Contains(t, u.get(api, over).body, "RFA_EXEC_TIMEOUT")
	times = s.eventTimes(retried)
	require.Equal(t, start.Add(5*time.Minute), times["job.retried"])
	began := times["job.running"]
	require.True(t, began.After(times["job.retried"]) && !began.After(start.Add(15*time.Minute)), "after the backoff: %s", began)
	require.Equal(t, began.Add(5*time.Minute), times["job.succeeded"])
	require.Contains(t, u.call(api, "GET", "/v1/jobs/"+running+"/report", "").body, `"duration_ms":1800000`)

	const key = "order-1"
	first := u.keyed(api, key, "/v1/jobs", custom(`{}`)).text("job_id")
	require.Equal(t, first, u.keyed(api, key, "/v1/jobs", custom(`{}`)).text("job_id"))
	s.await("SUCCEEDED", first)
	require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+first+"/result", "").status)
	u.moveClock(api, `{"advance":"24h"}`)
	require.NotEqual(t, first, u.keyed(api, key, "/v1/jobs", custom(`{}`)).text("job_id"), "the idempotency window has ended")
	u.call(api, "GET", "/v1/jobs/"+first+"/result", "").requireProblem(t, 410, "RFA_RESULT_GONE")

	u.moveClock(api, `{"advance":"720h"}`)
	u.call(api, "GET", "/v1/jobs", "").requireProblem(t, 401, "RFA_AUTH_TOKEN_EXPIRED")
	require.Equal(t, 1, s.count(`SELECT count(*) FROM workers WHERE state = 'ALIVE' AND expires_at > now()`), "leases use real time")
}
