package schedules

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const (
	schedulesAtOnce = 100     // schedules per transaction
	bytesAtOnce     = 8 << 20 // total size of the jobs per transaction
	deferWait       = time.Minute
)

// Runner runs due schedules, in the leader process.
type Runner struct {
	store   *repo.Store
	jobs    *jobs.Service
	metrics *app.Metrics
	log     *slog.Logger
	wake    chan struct{}

	mu    sync.Mutex // locked during a round, because requests to a test bed also run rounds
	timer *time.Timer
}

// NewRunner returns a Runner.
func NewRunner(store *repo.Store, jobs *jobs.Service, m *app.Metrics, log *slog.Logger) *Runner {
	return &Runner{store: store, jobs: jobs, metrics: m, log: log, wake: make(chan struct{}, 1)}
}

// Due returns a channel that receives a value at the next due time.
func (r *Runner) Due() <-chan struct{} { return r.wake }

// Round runs everything that is due and sets a timer for the next due time.
func (r *Runner) Round(ctx context.Context, leading func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for leading() {
		wait, any, err := r.store.NextLook(ctx)
		if err != nil || !any {
			return err
		}
		if wait > 0 {
			r.wakeIn(wait)
			return nil
		}
		if advanced, err := r.look(ctx); err != nil || !advanced {
			return err
		}
	}
	return nil
}

func (r *Runner) wakeIn(wait time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(wait, func() {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	})
}

func (r *Runner) look(ctx context.Context) (advanced bool, err error) {
	due, err := r.store.DueSchedules(ctx, schedulesAtOnce)
	if err != nil || len(due) == 0 {
		return false, err
	}
	part := r.prepare(ctx, due)
	n, err := r.commit(ctx, part)
	if err != nil && ctx.Err() == nil && !unavailable(err) {
		r.log.WarnContext(ctx, "cannot advance schedules together; advancing them one by one", "action", "schedules", app.ErrorFields(err))
		return r.single(ctx, due[:len(part.steps)+len(part.unreadable)])
	}
	if err == nil && len(part.unreadable) > 0 {
		n += len(part.unreadable)
		err = r.store.DeferSchedules(ctx, part.unreadable, deferWait)
	}
	return n > 0, err
}

type part struct {
	steps      []*stepper
	unreadable []job.DueSchedule
	bytes      int
}

func (r *Runner) prepare(ctx context.Context, due []job.DueSchedule) *part {
	p, known := &part{}, jobs.Origins{}
	for _, s := range due {
		if p.bytes >= bytesAtOnce {
			break
		}
		w, err := newStepper(s, func(at time.Time) (jobs.Run, error) { return r.jobs.PrepareRun(ctx, s.ID, s.Request(at), known) })
		if err != nil {
			r.log.ErrorContext(ctx, "the timetable of a schedule cannot be read", "action", "schedules", "schedule_id", s.ID.String(),
				app.ErrorFields(err))
			p.unreadable = append(p.unreadable, s)
			continue
		}
		w.do()
		p.steps, p.bytes = append(p.steps, w), p.bytes+len(w.step.Jobs)*bytesOf(&s.Schedule)
	}
	return p
}

func (r *Runner) commit(ctx context.Context, p *part) (n int, err error) {
	if len(p.steps) == 0 {
		return 0, nil
	}
	steps := make([]job.ScheduleStep, len(p.steps))
	for i, w := range p.steps {
		steps[i] = w.step
	}
	advanced, err := r.store.AdvanceSchedules(ctx, steps)
	for _, w := range p.steps {
		stored := advanced[w.step.ID]
		r.jobs.FinishRuns(ctx, w.runs, stored, err)
		if stored {
			n++
			r.record(ctx, w)
		}
	}
	return n, err
}

func (r *Runner) record(ctx context.Context, w *stepper) {
	before, now := w.s.ScheduleProgress, w.step.ScheduleProgress
	missed := now.Missed - before.Missed
	r.metrics.DueTimes.WithLabelValues(app.DueRun).Add(float64(len(w.step.Jobs)))
	r.metrics.DueTimes.WithLabelValues(app.DueMissed).Add(float64(missed))
	r.metrics.DueTimes.WithLabelValues(app.DueSkipped).Add(float64(now.Skipped - before.Skipped))
	for _, late := range w.late {
		r.metrics.RunLateness.Observe(late)
	}
	if missed > 0 {
		r.log.WarnContext(ctx, "due times of a schedule were missed", "action", "schedules", "schedule_id", w.s.ID.String(),
			"client_id", w.s.ClientID.String(), "missed", missed)
	}
}

// single runs each due schedule in its own transaction, so that a failure does not block other schedules. It retries a failed schedule
// after deferWait.
func (r *Runner) single(ctx context.Context, due []job.DueSchedule) (advanced bool, err error) {
	for _, s := range due {
		one := []job.DueSchedule{s}
		n, err := r.commit(ctx, r.prepare(ctx, one))
		if err == nil && n > 0 {
			advanced = true
			continue
		}
		if ctx.Err() != nil || err != nil && unavailable(err) {
			return advanced, err
		}
		if err != nil {
			r.log.WarnContext(ctx, "skipping a schedule for now", "action", "schedules", "schedule_id", s.ID.String(), app.ErrorFields(err))
		}
		if err := r.store.DeferSchedules(ctx, one, deferWait); err != nil {
			return advanced, err
		}
	}
	return true, nil
}

func unavailable(err error) bool {
	code := job.CodeOf(err)
	return code == job.CodeStorageUnavailable || code == job.CodeDBError
}
