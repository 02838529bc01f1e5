package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// runOf makes a job the run of a schedule for a due time.
func (w *world) runOf(schedule string, job int, due time.Time) {
	for _, kind := range []history.Kind{storedJob, history.ListedJob} {
		told := w.find(kind, job).Told
		told.Schedule, told.ScheduledFor = schedule, &due
	}
}

// scheduled has a job be the one run of a schedule, due so long after its creation.
func (w *world) scheduled(job int, due time.Duration) {
	at := w.find(storedJob, job).Told.CreatedAt.Add(due)
	w.runOf("schedule-1", job, at)
	w.add(history.Fact{At: w.start, Kind: history.Scheduled, Schedule: &history.Schedule{
		ID: "schedule-1", Interval: time.Second, CreatedAt: at.Add(-time.Second), EndAt: at,
	}})
}

// theSchedule is that of the sound world.
func (w *world) theSchedule() *history.Schedule {
	for i := range w.facts {
		if s := w.facts[i].Schedule; s != nil {
			return s
		}
	}
	return nil
}

// scheduleCorruptions spoil the schedule of the sound world.
var scheduleCorruptions = []corruption{
	{"a due time without a job", scheduled, 0, func(w *world) { s := w.theSchedule(); s.EndAt = s.EndAt.Add(s.Interval) }, true},
	{"a due time with two jobs", scheduled, 0, func(w *world) { w.runOf("schedule-1", failingJob, w.theSchedule().EndAt) }, true},
	{"a run for another time", scheduled, failingJob, func(w *world) {
		w.runOf("schedule-1", failingJob, w.theSchedule().EndAt.Add(-time.Millisecond))
	}, true},
	{"a run after the end", scheduled, failingJob, func(w *world) {
		w.runOf("schedule-1", failingJob, w.theSchedule().EndAt.Add(w.theSchedule().Interval))
	}, false},
	{"a run that is early", scheduled, emittingJob, func(w *world) {
		due := w.theSchedule().EndAt.Add(time.Second)
		*w.theSchedule() = history.Schedule{ID: "schedule-1", Interval: time.Second, CreatedAt: due.Add(-time.Second), EndAt: due}
		w.runOf("schedule-1", emittingJob, due)
	}, true},
	{"a run that was not asked for", scheduled, 0, func(w *world) {
		for _, kind := range []history.Kind{storedJob, history.ListedJob} {
			w.find(kind, failingJob).Told.Schedule = "schedule-1"
		}
	}, true},
	{"a run of a schedule that nobody created", accepted, failingJob, func(w *world) { w.runOf("schedule-2", failingJob, w.start) }, true},
	{"a run of another's schedule", foreign, othersJob, func(w *world) {
		w.runOf("schedule-1", othersJob, w.theSchedule().EndAt)
		w.runOf("", emittingJob, w.start)
		w.theSchedule().CreatedAt = w.theSchedule().EndAt.Add(-time.Second)
	}, false},
}
