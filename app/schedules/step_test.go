package schedules

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
)

var noon = time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)

func after(d time.Duration) *time.Time {
	at := noon.Add(d)
	return &at
}

func minutely(opts ...func(*job.DueSchedule)) job.DueSchedule {
	s := job.DueSchedule{Schedule: job.Schedule{
		ID: app.NewID(), Version: 7, Timetable: job.Timetable{Cron: "* * * * *"}, Overlap: job.OverlapAllow, CatchUp: job.CatchUpNone,
		CatchUpMax: job.DefaultCatchUp, ScheduleProgress: job.ScheduleProgress{DueAt: after(0), LookAt: after(0)},
	}}
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// All times are relative to noon; the returned due times are in seconds.
func step(t *testing.T, s job.DueSchedule, at time.Duration, refuse ...error) (job.ScheduleStep, []float64) {
	t.Helper()
	s.Now = noon.Add(at)
	var runs []float64
	w, err := newStepper(s, func(due time.Time) (jobs.Run, error) {
		require.False(t, due.After(s.Now), "no run is early")
		if len(refuse) > 0 {
			return jobs.Run{}, refuse[0]
		}
		runs = append(runs, due.Sub(noon).Seconds())
		return jobs.Run{Job: job.Job{ID: app.NewID()}}, nil
	})
	require.NoError(t, err)
	w.do()
	require.Len(t, w.step.Jobs, len(runs))
	for n, j := range w.step.Jobs {
		require.Equal(t, runs[n], j.ScheduledFor.Sub(noon).Seconds())
	}
	require.Equal(t, s.Version, w.step.Version)
	return w.step, runs
}

func seconds(t *time.Time) float64 { return t.Sub(noon).Seconds() }

func TestStepRunsWhatIsDue(t *testing.T) {
	t.Parallel()
	p, runs := step(t, minutely(), -time.Millisecond)
	require.Empty(t, runs)
	require.Equal(t, noon, *p.LookAt)
	p, runs = step(t, minutely(), 0)
	require.Equal(t, []float64{0}, runs)
	require.Equal(t, []float64{60, 60}, []float64{seconds(p.DueAt), seconds(p.LookAt)})
	require.Equal(t, []int64{1, 0, 0}, []int64{p.Runs, p.Missed, p.Skipped})
	require.Equal(t, p.Jobs[0].ID, p.LastJobID)
	_, runs = step(t, minutely(), 60*time.Second)
	require.Equal(t, []float64{0, 60}, runs, "a minute late counts as on time")
	p, runs = step(t, minutely(func(s *job.DueSchedule) { s.EndAt = after(time.Minute) }), 60*time.Second)
	require.Equal(t, []float64{0, 60}, runs)
	require.Nil(t, p.DueAt)
	require.Nil(t, p.LookAt)
}

func TestStepCatchesUp(t *testing.T) {
	t.Parallel()
	const ten = 10*time.Minute + time.Second
	for policy, want := range map[job.CatchUp][]float64{
		job.CatchUpNone: {600}, job.CatchUpLast: {540, 600}, job.CatchUpAll: {420, 480, 540, 600},
	} {
		p, runs := step(t, minutely(func(s *job.DueSchedule) { s.CatchUp, s.CatchUpMax = policy, 3 }), ten)
		require.Equal(t, want, runs, policy)
		require.EqualValues(t, 11-len(want), p.Missed, policy)
		require.Equal(t, 660.0, seconds(p.DueAt))
		require.EqualValues(t, 7, p.Version)
	}
	p, runs := step(t, minutely(func(s *job.DueSchedule) { s.CatchUp, s.Overlap = job.CatchUpAll, job.OverlapSkip }), ten)
	require.Equal(t, []float64{0}, runs)
	require.Equal(t, []int64{1, 0, 10}, []int64{p.Runs, p.Missed, p.Skipped}, "later due times overlap the first run")
	_, runs = step(t, minutely(func(s *job.DueSchedule) { s.Jumped = after(ten) }), ten)
	require.Len(t, runs, 11, "due times that the clock jumped over are not missed")
}

func TestStepsOfALongGap(t *testing.T) {
	t.Parallel()
	s := minutely(func(s *job.DueSchedule) { s.CatchUp, s.CatchUpMax = job.CatchUpAll, 250 })
	var all []float64
	for seconds(s.DueAt) <= 60_000 {
		p, runs := step(t, s, 1000*time.Minute)
		require.LessOrEqual(t, len(runs), runsAtOnce)
		require.NotEmpty(t, runs)
		all = append(all, runs...)
		s.ScheduleProgress = p.ScheduleProgress
	}
	require.Len(t, all, 252)
	for n := range all[1:] {
		require.Equal(t, 60.0, all[n+1]-all[n])
	}
	require.Equal(t, 60_000.0, all[251])
	require.EqualValues(t, 1001-252, s.Missed)

	s = minutely(func(s *job.DueSchedule) { s.Job.Params = make([]byte, 250<<10) })
	_, runs := step(t, s, time.Minute)
	require.Len(t, runs, 2)
	s.Jumped = after(1000 * time.Minute)
	_, runs = step(t, s, 1000*time.Minute)
	require.Len(t, runs, 4, "limited by the size of the jobs")

	years := minutely(func(s *job.DueSchedule) { s.Cron, s.CatchUp = "* * * * * *", job.CatchUpLast })
	p, runs := step(t, years, 20*365*24*time.Hour)
	require.Len(t, runs, 1+61)
	require.EqualValues(t, maxMissed-1, p.Missed, "the count of missed due times is limited")
}

func TestStepOverlap(t *testing.T) {
	t.Parallel()
	busy := func(policy job.Overlap) func(*job.DueSchedule) {
		return func(s *job.DueSchedule) { s.Overlap, s.Busy = policy, true }
	}
	_, runs := step(t, minutely(busy(job.OverlapAllow)), 60*time.Second)
	require.Len(t, runs, 2)
	p, runs := step(t, minutely(busy(job.OverlapSkip)), 60*time.Second)
	require.Empty(t, runs)
	require.EqualValues(t, 2, p.Skipped)
	require.Equal(t, 120.0, seconds(p.LookAt))

	s := minutely(busy(job.OverlapQueueOne))
	p, runs = step(t, s, 60*time.Second)
	require.Empty(t, runs)
	require.Equal(t, []float64{0, 120, 61}, []float64{seconds(p.Pending), seconds(p.DueAt), seconds(p.LookAt)})
	require.EqualValues(t, 1, p.Skipped)
	s.ScheduleProgress, s.Busy = p.ScheduleProgress, false
	p, runs = step(t, s, 61*time.Second)
	require.Equal(t, []float64{0}, runs, "the pending run")
	require.Nil(t, p.Pending)
	require.Equal(t, 120.0, seconds(p.LookAt))
	p, runs = step(t, s, 120*time.Second)
	require.Equal(t, []float64{0}, runs)
	require.Equal(t, 120.0, seconds(p.Pending), "the next due time is pending")
	s.DueAt = nil
	require.Equal(t, job.ScheduleActive, s.State())
}

var errFull = job.Errorf(job.CodeQueueFull, "The server holds its maximum number of jobs.")

func TestStepRefused(t *testing.T) {
	t.Parallel()
	s := minutely()
	p, _ := step(t, s, 0, errFull)
	require.True(t, p.Retrying)
	require.Equal(t, []float64{0, 1}, []float64{seconds(p.DueAt), seconds(p.LookAt)})
	require.Equal(t, &job.ScheduleError{DueAt: job.Time(noon), Code: job.CodeQueueFull, Detail: errFull.Detail}, p.LastError)
	require.Zero(t, p.Missed)

	s.ScheduleProgress = p.ScheduleProgress
	_, runs := step(t, s, 30*time.Second)
	require.Equal(t, []float64{0}, runs)
	p, runs = step(t, s, 60*time.Second)
	require.Equal(t, []float64{60}, runs)
	require.EqualValues(t, 1, p.Missed)
	require.False(t, p.Retrying)
	require.NotNil(t, p.LastError)
	p, _ = step(t, s, 60*time.Second, errFull)
	require.Equal(t, 60.0, seconds(p.DueAt))
	require.EqualValues(t, 1, p.Missed)
	p, _ = step(t, minutely(), 60*time.Second, errFull)
	require.EqualValues(t, 1, p.Missed, "the first of two due times is missed")
	require.Equal(t, 60.0, seconds(p.DueAt))

	hourly := minutely(func(s *job.DueSchedule) { s.Cron, s.Retrying = "0 * * * *", true })
	_, runs = step(t, hourly, 59*time.Minute)
	require.Equal(t, []float64{0}, runs, "a retried due time is not missed before the next one")
	once := minutely(func(s *job.DueSchedule) { s.EndAt = after(0) })
	p, _ = step(t, once, 0, errFull)
	require.Equal(t, noon, *p.DueAt, "the last due time is retried forever")

	p, _ = step(t, minutely(), 0, errors.New("password=secret"))
	require.NotContains(t, p.LastError.Detail, "secret")
}

func TestStepJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 50 {
		s := minutely(func(s *job.DueSchedule) { s.Jitter = 30 * time.Second })
		p, runs := step(t, s, -time.Second)
		require.Empty(t, runs)
		begins := p.LookAt.Sub(noon)
		require.True(t, 0 <= begins && begins <= s.Jitter)
		seen[begins] = true
		if begins > 0 {
			_, runs = step(t, s, begins-time.Millisecond)
			require.Empty(t, runs)
		}
		_, runs = step(t, s, begins)
		require.Equal(t, []float64{0}, runs)
	}
	require.Greater(t, len(seen), 10)
}
