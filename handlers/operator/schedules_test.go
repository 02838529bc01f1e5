package operator_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// schedules has one, and notes in done what is done to it.
type schedules struct{ s *store }

func aSchedule(id job.ID, paused bool) *job.Schedule {
	due := time.Date(2030, 1, 2, 4, 30, 0, 0, time.UTC)
	s := &job.Schedule{
		ID: id, ClientID: anID, Timetable: job.Timetable{Cron: "30 4 * * *"}, Overlap: job.OverlapSkip, CatchUp: job.CatchUpLast, Paused: paused,
		Job:              job.ScheduledJob{Type: job.Execute, Params: []byte(`{"password":"x"}`)},
		ScheduleProgress: job.ScheduleProgress{DueAt: &due, Missed: 2, LastError: &job.ScheduleError{Code: job.CodeQueueFull, Detail: "Full."}},
	}
	if paused {
		s.DueAt = nil
	}
	return s
}

func (f schedules) Schedule(_ context.Context, client, id job.ID) (*job.Schedule, error) {
	if !client.IsZero() {
		panic("operators see those of all clients")
	}
	return aSchedule(id, false), f.s.err
}

func (f schedules) Schedules(_ context.Context, client job.ID, _ job.ScheduleQuery) ([]*job.Schedule, job.ID, error) {
	listed := aSchedule(anID, false)
	listed.LastJobID = client // to show whose were asked for
	return []*job.Schedule{listed}, anID, f.s.err
}

func (f schedules) SetPaused(_ context.Context, client, id job.ID, paused bool) (*job.Schedule, error) {
	if !client.IsZero() {
		panic("operators pause those of all clients")
	}
	f.s.done = append(f.s.done, "pause schedule")
	return aSchedule(id, paused), f.s.err
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.get("/admin/v1/schedules?client_id=" + anID.String())
	require.Equal(t, 200, list.StatusCode, list.text)
	require.Contains(t, list.text, `"last_job_id":"`+anID.String()+`"`)
	require.Contains(t, list.text, `"next_runs":["2030-01-02T04:30:00.000000Z","2030-01-03T04:30:00.000000Z"`)
	require.NotContains(t, list.text, "password", "what clients send is not shown")
	paused := w.send(changeToken, "POST", "/admin/v1/schedules/"+anID.String()+"/pause", "")
	require.Contains(t, paused.text, `"state":"PAUSED"`)
	require.Contains(t, paused.text, `"next_runs":[]`)
	require.Contains(t, w.send(changeToken, "POST", "/admin/v1/schedules/"+anID.String()+"/resume", "").text, `"state":"ACTIVE"`)
	require.Len(t, w.store.entries, 2, "each is in the audit log")
	require.Equal(t, "resume_schedule", w.store.entries[1].Action)
	require.Equal(t, "schedule", w.store.entries[1].TargetType)
}
