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
	{"0 jobs stand for 03:04:23.000000Z of schedule schedule-1, not one", scheduled, 0, func(w *world) {
		s := w.theSchedule()
		s.EndAt = s.EndAt.Add(s.Interval)
	}, true},
	{"2 jobs stand for 03:04:22.000000Z of schedule schedule-1, not one", scheduled, 0, func(w *world) {
		w.runOf("schedule-1", failingJob, w.theSchedule().EndAt)
	}, true},
	{"the job stands for 03:04:21.999000Z, which is no due time of its schedule", scheduled, failingJob, func(w *world) {
		w.runOf("schedule-1", failingJob, w.theSchedule().EndAt.Add(-time.Millisecond))
	}, true},
	{"the job stands for 03:04:23.000000Z, which is no due time of its schedule", scheduled, failingJob, func(w *world) {
		w.runOf("schedule-1", failingJob, w.theSchedule().EndAt.Add(w.theSchedule().Interval))
	}, false},
	{"was created before, at 03:04:22.000000Z", scheduled, emittingJob, func(w *world) {
		due := w.theSchedule().EndAt.Add(time.Second)
		*w.theSchedule() = history.Schedule{ID: "schedule-1", Interval: time.Second, CreatedAt: due.Add(-time.Second), EndAt: due}
		w.runOf("schedule-1", emittingJob, due)
	}, true},
	{"schedule schedule-1 has 1 runs for no due time, and nobody triggered it", scheduled, 0, func(w *world) {
		for _, kind := range []history.Kind{storedJob, history.ListedJob} {
			w.find(kind, failingJob).Told.Schedule = "schedule-1"
		}
	}, true},
	{"the job is a run of schedule schedule-2, which nobody created", accepted, failingJob, func(w *world) {
		w.runOf("schedule-2", failingJob, w.start)
	}, true},
	{"the job is a run of a schedule of tenant 0", foreign, othersJob, func(w *world) {
		w.runOf("schedule-1", othersJob, w.theSchedule().EndAt)
		w.runOf("", emittingJob, w.start)
		w.theSchedule().CreatedAt = w.theSchedule().EndAt.Add(-time.Second)
	}, false},
}
