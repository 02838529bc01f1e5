package repo_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// schedule stores a schedule that was due a second ago.
func (f *fixture) schedule(opts ...func(*job.Schedule)) *job.Schedule {
	s := job.Schedule{
		ID: newID(), ClientID: f.client, Name: "nightly", Timetable: job.Timetable{Interval: time.Minute, Jitter: time.Second},
		Overlap: job.OverlapSkip, CatchUp: job.CatchUpLast, CatchUpMax: 3, Language: "en", RequestID: "r-1",
		Job: job.ScheduledJob{Type: job.Execute, WorkKind: job.SuccessFast, Params: json.RawMessage(`{"b": 1, "a":2.0}`)},
	}
	added := must(f.store.InsertSchedule(f.ctx(), s, 1000, func(s *job.Schedule) error {
		due := s.CreatedAt.Add(-time.Second)
		s.DueAt, s.LookAt = &due, &due
		for _, opt := range opts {
			opt(s)
		}
		return nil
	}))(f.t)
	return added
}

func (f *fixture) due(id job.ID) (found job.DueSchedule) {
	for _, d := range must(f.store.DueSchedules(f.ctx(), 1000))(f.t) {
		if d.ID == id {
			return d
		}
	}
	require.Fail(f.t, "the schedule is not due")
	return found
}

func (f *fixture) stepOf(s *job.Schedule) job.ScheduleStep {
	j := f.submission().Job
	j.ScheduleID, j.ScheduledFor = s.ID, s.DueAt
	p := s.ScheduleProgress
	next := s.DueAt.Add(time.Minute)
	p.LastDueAt, p.LastJobID, p.DueAt, p.LookAt = s.DueAt, j.ID, &next, &next
	p.Runs++
	return job.ScheduleStep{ID: s.ID, Version: s.Version, ScheduleProgress: p, Jobs: []job.Job{j}}
}

func TestScheduleIsStored(t *testing.T) {
	f := setup(t)
	added := f.schedule()
	require.JSONEq(t, `{"b": 1, "a":2.0}`, string(added.Job.Params))
	require.Equal(t, []any{time.Minute, time.Second, job.OverlapSkip, job.CatchUpLast, 3, "nightly", int64(1)},
		[]any{added.Interval, added.Jitter, added.Overlap, added.CatchUp, added.CatchUpMax, added.Name, added.Version})
	require.Equal(t, added, must(f.store.Schedule(f.ctx(), f.client, added.ID))(t))

	changed := must(f.store.ChangeSchedule(f.ctx(), job.ID{}, added.ID, func(s *job.Schedule, now time.Time) error {
		require.WithinDuration(t, time.Now(), now, testkit.Patience)
		s.Cron, s.Interval, s.TimeZone, s.Paused, s.DueAt, s.LookAt = "* * * * *", 0, "Asia/Tokyo", true, nil, nil
		return nil
	}))(t)
	require.Equal(t, job.SchedulePaused, changed.State())
	require.EqualValues(t, 2, changed.Version)
	require.NoError(t, f.store.DeleteSchedule(f.ctx(), f.client, added.ID))
	require.Equal(t, job.CodeScheduleMissing, job.CodeOf(f.store.DeleteSchedule(f.ctx(), f.client, added.ID)))
}

func TestSchedulesAreDueInTurns(t *testing.T) {
	f := setup(t)
	late := make([]*job.Schedule, 5)
	for n := range late {
		late[n] = f.schedule(func(s *job.Schedule) { s.LookAt = new(s.LookAt.Add(time.Duration(n-60) * time.Second)) })
	}
	other := f.schedule(func(s *job.Schedule) { s.ClientID = newID() })
	due := must(f.store.DueSchedules(f.ctx(), 3))(t)
	require.Len(t, due, 3)
	require.Equal(t, []job.ID{late[0].ID, other.ID, late[1].ID}, []job.ID{due[0].ID, due[1].ID, due[2].ID})
}

func TestSchedulesOfAClientAreLimitedAndListed(t *testing.T) {
	f := setup(t)
	first, second := f.schedule(), f.schedule()
	foreign := f.schedule(func(s *job.Schedule) { s.ClientID = newID() })
	full := func(*job.Schedule) error { return nil }
	require.Equal(t, job.CodeConflict, codeOf(f.store.InsertSchedule(f.ctx(), *first, 2, full)))
	list := func(client job.ID, limit int) []job.ID {
		all, _ := walk(f, func(after job.ID) ([]*job.Schedule, job.ID) {
			return must2(f.store.Schedules(f.ctx(), client, job.ScheduleQuery{Limit: limit, After: after}))(t)
		})
		return each(all, func(s *job.Schedule) job.ID { return s.ID })
	}
	require.Equal(t, []job.ID{second.ID, first.ID}, list(f.client, 1))
	require.Equal(t, []job.ID{foreign.ID, second.ID, first.ID}, list(job.ID{}, 10))
}

func TestDueTimeHasOneJob(t *testing.T) {
	f := setup(t)
	s := f.schedule()
	wait, found := must2(f.store.NextLook(f.ctx()))(t)
	require.True(t, found)
	require.Less(t, wait, time.Duration(0))
	d := f.due(s.ID)
	require.Nil(t, d.Jumped)
	require.False(t, d.Busy)

	var won atomic.Int32
	inParallel(8, func(int) {
		advanced, err := f.store.AdvanceSchedules(f.ctx(), []job.ScheduleStep{f.stepOf(&d.Schedule)})
		if err == nil && advanced[s.ID] {
			won.Add(1)
		}
	})
	require.EqualValues(t, 1, won.Load())
	require.Equal(t, 1, f.count(`jobs WHERE schedule_id = $1`, s.ID.String()))
	after := must(f.store.Schedule(f.ctx(), f.client, s.ID))(t)
	require.EqualValues(t, 1, after.Runs)
	j := f.job(after.LastJobID)
	require.Equal(t, []any{s.ID, s.DueAt, job.Queued}, []any{j.ScheduleID, j.ScheduledFor, j.State})

	// Make the schedule due again at a time that already has a job. The unique index refuses a second job, and the whole call fails.
	f.exec(`UPDATE schedules SET due_at = $2, look_at = $2, version = 1 WHERE schedule_id = $1`, s.ID.String(), *s.DueAt)
	other := f.schedule()
	require.Error(t, errOf(f.store.AdvanceSchedules(f.ctx(), []job.ScheduleStep{f.stepOf(other), f.stepOf(s)})))
	require.Equal(t, 1, f.countJobs())
	require.Equal(t, other.DueAt, f.due(other.ID).DueAt)
}

func TestStepOfAChangedScheduleIsSkipped(t *testing.T) {
	f := setup(t)
	s := f.schedule()
	must(f.store.ChangeSchedule(f.ctx(), f.client, s.ID, func(s *job.Schedule, _ time.Time) error { s.Name = "other"; return nil }))(t)
	advance := func(s *job.Schedule) map[job.ID]bool {
		return must(f.store.AdvanceSchedules(f.ctx(), []job.ScheduleStep{f.stepOf(s)}))(t)
	}
	require.Empty(t, advance(s))
	require.Zero(t, f.countJobs())

	unlock := f.lock(`SELECT FROM schedules FOR UPDATE`)
	now := f.due(s.ID)
	require.Empty(t, advance(&now.Schedule), "a locked schedule is skipped")
	unlock()
	require.NoError(t, f.store.DeferSchedules(f.ctx(), []job.DueSchedule{now}, time.Hour))
	wait, _ := must2(f.store.NextLook(f.ctx()))(t)
	require.Greater(t, wait, 59*time.Minute)
}

func TestScheduleIsBusy(t *testing.T) {
	f := setup(t)
	s := f.schedule()
	triggered := f.submission().Job
	triggered.ScheduleID = s.ID
	require.False(t, f.due(s.ID).Busy)
	require.NoError(t, f.store.InsertRun(f.ctx(), triggered))
	require.True(t, f.due(s.ID).Busy)
	f.finish(success(f.claim(triggered.ID, 1)))
	require.False(t, f.due(s.ID).Busy)
	step := f.stepOf(s)
	step.LookAt = s.LookAt
	must(f.store.AdvanceSchedules(f.ctx(), []job.ScheduleStep{step}))(t)
	require.True(t, f.due(s.ID).Busy)
	f.exec(`UPDATE schedules SET overlap = 'allow'`)
	require.False(t, f.due(s.ID).Busy, "earlier runs do not matter")
	f.exec(`UPDATE schedules SET overlap = 'queue_one'`)
	f.finish(success(f.claim(step.Jobs[0].ID, 1)))
	require.False(t, f.due(s.ID).Busy)

	page := must(f.store.Jobs(f.ctx(), f.client, job.Query{ScheduleID: s.ID, Limit: 10}))(t)
	require.Len(t, page.Jobs, 2)
	require.Equal(t, step.Jobs[0].ID, page.Jobs[0].ID)
	require.Nil(t, page.Jobs[1].ScheduledFor)
	require.Empty(t, must(f.store.Jobs(f.ctx(), newID(), job.Query{ScheduleID: s.ID, Limit: 10}))(t).Jobs)
}
