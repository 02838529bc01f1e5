package schedules

import (
	"hash/fnv"
	"time"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

const (
	// Limits of one step of a schedule. They keep a schedule from delaying the others.
	runsAtOnce  = 100
	bytesOfStep = 1 << 20
	// ordinaryBytes is the assumed size of a job without params.
	ordinaryBytes = 4 << 10
	// While a run waits for the end of the previous run, the schedule is checked every pendingInterval.
	pendingInterval = time.Second
	retryInterval   = time.Second
	// maxMissed limits how many missed due times are counted, because a schedule can miss one per second for years.
	maxMissed = 10_000
)

type prepare func(due time.Time) (jobs.Run, error)

// stepper processes the due times of a schedule up to now, in order. It counts each due time as run, missed, skipped or pending.
type stepper struct {
	s       job.DueSchedule
	times   *timetable.Times
	prepare prepare
	step    job.ScheduleStep
	runs    []jobs.Run // runs[i] belongs to step.Jobs[i]
	late    []float64  // in seconds
}

// newStepper fails if the timetable cannot be parsed.
func newStepper(s job.DueSchedule, prepare prepare) (*stepper, error) {
	times, err := timetable.New(s.Timetable, s.Anchor())
	if err != nil {
		return nil, err
	}
	return &stepper{s: s, times: times, prepare: prepare,
		step: job.ScheduleStep{ID: s.ID, Version: s.Version, ScheduleProgress: s.ScheduleProgress}}, nil
}

// begin returns the due time plus a jitter. The jitter depends on the schedule's id and the due time.
func begin(s *job.Schedule, due time.Time) time.Time {
	if s.Jitter < time.Millisecond {
		return due
	}
	h := fnv.New64a()
	_, _ = h.Write(s.ID[:])
	_, _ = h.Write(due.UTC().AppendFormat(nil, time.RFC3339Nano))
	return due.Add(time.Duration(h.Sum64()%uint64(s.Jitter.Milliseconds()+1)) * time.Millisecond)
}

func (w *stepper) passed(due *time.Time) bool {
	return due != nil && !begin(&w.s.Schedule, *due).After(w.s.Now)
}

// jumped reports whether a test bed's clock jumped over a due time. A run at such a due time counts as on time.
func (w *stepper) jumped(due time.Time) bool { return w.s.Jumped != nil && !due.After(*w.s.Jumped) }

func (w *stepper) after(due time.Time) *time.Time {
	next, ok := w.times.After(due)
	if !ok {
		return nil
	}
	return &next
}

func (w *stepper) do() {
	p := &w.step.ScheduleProgress
	if p.Pending != nil && !w.s.Busy {
		w.runPending()
	}
	if p.Retrying { // a refused run is retried until the next due time, and then counts as missed
		if next := w.after(*p.DueAt); w.passed(next) {
			p.Missed++
			p.DueAt, p.Retrying = next, false
		}
	}
	var chosen []time.Time
	if !p.Retrying && w.passed(p.DueAt) {
		chosen = w.catchUp()
	}
	refused := false
	atOnce := min(runsAtOnce, max(1, bytesOfStep/bytesOf(&w.s.Schedule)))
	for n := 0; n < atOnce && !refused && (len(chosen) > 0 || w.passed(p.DueAt)); n++ {
		refused = w.due(&chosen)
	}
	if len(chosen) > 0 { // the remaining due times are handled in the next step
		p.DueAt = &chosen[0]
	}
	w.lookAgain(refused)
}

func bytesOf(s *job.Schedule) int { return ordinaryBytes + len(s.Job.Params) }

// catchUp returns the late due times that still get a job according to the catch-up policy. It counts the other late due times as missed.
func (w *stepper) catchUp() (chosen []time.Time) {
	p := &w.step.ScheduleProgress
	late := w.s.Now.Add(-job.ScheduleOnTime - w.s.Jitter - time.Nanosecond) // due times up to this time are late
	if p.DueAt.After(late) || w.jumped(*p.DueAt) {
		return nil
	}
	passed := 0
	for due := p.DueAt; due != nil && !due.After(late) && passed < maxMissed; due = w.after(*due) {
		passed++
	}
	n := map[job.CatchUp]int{job.CatchUpLast: 1, job.CatchUpAll: w.s.CatchUpMax}[w.s.CatchUp]
	if n > 0 {
		chosen = w.times.LastBefore(p.DueAt.Add(-time.Nanosecond), late, n)
	}
	p.Missed += int64(max(0, passed-len(chosen)))
	p.DueAt = w.after(late)
	return chosen
}

func (w *stepper) due(chosen *[]time.Time) (refused bool) {
	p := &w.step.ScheduleProgress
	var due time.Time
	var next *time.Time
	if len(*chosen) > 0 {
		due, *chosen = (*chosen)[0], (*chosen)[1:]
		if next = p.DueAt; len(*chosen) > 0 {
			next = &(*chosen)[0]
		}
	} else {
		due, next = *p.DueAt, w.after(*p.DueAt)
		p.DueAt = next
	}
	switch {
	case w.s.Busy && w.s.Overlap == job.OverlapQueueOne && p.Pending == nil:
		p.Pending = &due
	case w.s.Busy && w.s.Overlap != job.OverlapAllow:
		p.Skipped++
	case w.run(due):
	case w.passed(next):
		p.Missed++
	default:
		p.DueAt, p.Retrying, *chosen = &due, true, nil
		return true
	}
	p.Retrying = false
	return false
}

func (w *stepper) runPending() {
	if p := &w.step.ScheduleProgress; w.run(*p.Pending) {
		p.Pending = nil
	}
}

// run returns false if the job was refused.
func (w *stepper) run(due time.Time) bool {
	p := &w.step.ScheduleProgress
	run, err := w.prepare(due)
	if err != nil {
		p.LastError = job.NewScheduleError(due, err)
		return false
	}
	began, j := begin(&w.s.Schedule, due), &run.Job
	if j.ScheduledFor = &due; w.jumped(due) {
		j.CreatedAt = began
	}
	w.runs, w.step.Jobs = append(w.runs, run), append(w.step.Jobs, *j)
	w.late = append(w.late, max(0, w.s.Now.Sub(began).Seconds()))
	w.s.Busy = w.s.Overlap != job.OverlapAllow
	p.Runs++
	p.LastDueAt, p.LastJobID = &due, j.ID
	return true
}

func (w *stepper) lookAgain(refused bool) {
	p := &w.step.ScheduleProgress
	p.LookAt = nil
	at := func(t time.Time) {
		if p.LookAt == nil || t.Before(*p.LookAt) {
			p.LookAt = &t
		}
	}
	switch {
	case p.DueAt == nil:
	case refused || p.Retrying:
		at(w.s.Now.Add(retryInterval))
		if next := w.after(*p.DueAt); next != nil {
			at(begin(&w.s.Schedule, *next))
		}
	default:
		at(begin(&w.s.Schedule, *p.DueAt))
	}
	if p.Pending != nil {
		at(w.s.Now.Add(pendingInterval))
	}
}
