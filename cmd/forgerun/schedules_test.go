package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (u *user) schedule(api *proc, body string) (path, id string) {
	u.s.t.Helper()
	a := u.expect(api, http.StatusCreated, "POST", "/v1/schedules", body)
	return a.header.Get("Location"), a.text("schedule_id")
}

func (s *stack) runIDs(schedule string) []string {
	s.t.Helper()
	return s.texts(`SELECT job_id::text FROM jobs WHERE schedule_id = $1 ORDER BY scheduled_for`, schedule)
}

// runs returns the due times and the creation times of the schedule's jobs, sorted by due time.
func (s *stack) runs(schedule string) (due, created []time.Time) {
	s.t.Helper()
	for _, run := range structs[struct{ Due, Created time.Time }](s, `SELECT scheduled_for, created_at FROM jobs
		WHERE schedule_id = $1 AND scheduled_for IS NOT NULL ORDER BY scheduled_for, created_at`, schedule) {
		due, created = append(due, run.Due.UTC()), append(created, run.Created.UTC())
	}
	return due, created
}

func (s *stack) awaitRuns(schedule string, n int, interval time.Duration) (due []time.Time) {
	s.t.Helper()
	var created []time.Time
	eventually(s.t, fmt.Sprintf("%d runs", n), func() bool {
		due, created = s.runs(schedule)
		return len(due) >= n
	})
	s.requireExact(due, created, interval)
	return due
}

func (s *stack) requireExact(due, created []time.Time, interval time.Duration) {
	s.t.Helper()
	for i := range due {
		require.False(s.t, created[i].Before(due[i]), "none is early")
		if i > 0 {
			require.Equal(s.t, interval, due[i].Sub(due[i-1]), "one job for each due time: %v", due)
		}
	}
}

// The leader is killed repeatedly while schedules are due every second. Each due time gets exactly one job.
func TestLeaderIsKilledAtDueTimes(t *testing.T) {
	s := newStack(t)
	leader := s.startLeader()
	other := s.startAPI()
	u := s.newUser(other)
	var ids []string
	for range 5 {
		_, id := u.schedule(other, `{"interval":"1s","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
		ids = append(ids, id)
	}
	for range 2 {
		first, _ := s.runs(ids[0])
		due := s.awaitRuns(ids[0], len(first)+2, time.Second)
		if wait := time.Until(due[len(due)-1].Add(time.Second)); wait > 0 {
			time.Sleep(wait)
		}
		leader.kill()
		s.endLead()
		leader, other = other, s.startAPI()
		s.awaitRuns(ids[0], len(due)+2, time.Second)
	}
	for _, id := range ids {
		s.awaitRuns(id, 6, time.Second)
	}
	s.startWorker()
	for _, id := range ids {
		require.Equal(t, http.StatusNoContent, u.call(other, "DELETE", "/v1/schedules/"+id, "").status)
	}
	for _, id := range ids {
		s.await("SUCCEEDED", s.runIDs(id)...)
	}
	s.checkInvariants()
}

// If a job limit refuses a scheduled job, the service retries until the next due time. Then the earlier due time counts as missed.
func TestRefusedRunsAreMissed(t *testing.T) {
	s, api, u := newService(t, env{"FORGERUN_MAX_ACTIVE_JOBS": "1"})
	blocking := u.submit(api, execute("SUCCESS_FAST"))
	path, id := u.schedule(api, `{"interval":"2s","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
	var shown answer
	eventually(t, "a run is missed", func() bool {
		shown = u.call(api, "GET", path, "")
		return shown.value("missed").(float64) >= 1
	})
	require.Zero(t, shown.value("runs"))
	require.Equal(t, "RFA_EXEC_QUEUE_FULL", shown.value("last_error").(map[string]any)["code"])
	u.call(api, "POST", "/v1/jobs/"+blocking+"/cancel", "")
	s.awaitRuns(id, 1, 2*time.Second)
}

// Schedules use the clock of the test bed. After a jump, no due time is skipped or repeated.
func TestSchedulesFollowAMovedClock(t *testing.T) {
	s := newStack(t, testBed)
	api := s.startLeader()
	s.startAPI()
	u := s.newUser(api)
	frozen := u.moveClock(api, `{"freeze":true}`)
	start := frozen.Now.Truncate(time.Hour).Add(time.Hour)
	_, id := u.schedule(api, `{"cron":"0 * * * *","job":{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}}`)
	u.moveClock(api, `{"advance":"48h"}`)
	due, created := s.runs(id)
	require.Len(t, due, 48, "all runs exist when the response arrives")
	require.Equal(t, start, due[0])
	s.requireExact(due, created, time.Hour)
	require.Equal(t, due, created, "each job is created at its due time")
	u.moveClock(api, `{"rate":3600}`)
	s.awaitRuns(id, 50, time.Hour)
	s.startWorker()
}
