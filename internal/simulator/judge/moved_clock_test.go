package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	jumpAt = 20 * time.Second
	jumpBy = 10 * time.Minute // most events are within this time after jumpAt
)

// clockJumps changes the times of observations as if the clock had jumped. Stored times do not change, because they are service times.
// Events of the skipped time are observed right after the jump, in order.
func (w *world) clockJumps() *world {
	from := w.start.Add(jumpAt)
	w.run.Collected.Moves = history.Moves{{Number: 1, Real: from, Service: from.Add(jumpBy), Rate: 1}}
	seen := func(at *time.Time) {
		switch {
		case at.IsZero() || !at.After(from):
		case at.After(from.Add(jumpBy)):
			*at = at.Add(-jumpBy)
		default:
			*at = from.Add(at.Sub(from) / 1_000_000)
		}
	}
	for i := range w.facts {
		f := &w.facts[i]
		seen(&f.At)
		seen(&f.Sent)
		if f.Submission != nil {
			for n := range f.Submission.Tries {
				seen(&f.Submission.Tries[n].Sent)
				seen(&f.Submission.Tries[n].Answered)
			}
		}
		if f.Action != nil {
			seen(&f.Action.Sent)
		}
	}
	return w
}

func (w *world) violated(t *testing.T) map[string]int64 {
	t.Helper()
	found := map[string]int64{}
	for _, r := range w.judge(t).Invariants {
		if r.Violations > 0 {
			found[r.Key] = r.Violations
		}
	}
	return found
}

func TestResultsAreGoneAfterADay(t *testing.T) {
	t.Parallel()
	for ahead, violated := range map[time.Duration]int{23 * time.Hour: 1, 25 * time.Hour: 0} {
		w := soundWorld()
		end := w.facts[len(w.facts)-1].At
		w.run.Collected.Moves = history.Moves{{Number: 1, Real: end, Service: end.Add(ahead), Rate: 1}}
		w.shown(plainJob).ResultSize, w.shown(plainJob).ResultError = nil, resultGone
		require.Len(t, w.violated(t), violated, ahead)
	}
}

func TestSoundHistoryOfAMovedClockPasses(t *testing.T) {
	t.Parallel()
	w := soundWorld().clockJumps()
	v := w.judge(t)
	require.Empty(t, v.Violations)
	for _, invariant := range Invariants {
		require.Positive(t, v.Of(invariant.Key).Checked, invariant.Key)
	}

	w.run.Collected.Moves = nil
	require.NotEmpty(t, w.violated(t), "without the moves, the history violates invariants")
}

func TestCorruptionsAreCaughtWithMovedClock(t *testing.T) {
	t.Parallel()
	for _, c := range corruptions {
		if slices.Contains([]string{accepted, keyed, foreign, expected, measured, tasked}, c.invariant) { // these invariants use no clock
			continue
		}
		if strings.Contains(c.what, "it was settled 0s after its event") { // not checked with a moved clock, because the clock may be frozen
			continue
		}
		w := soundWorld()
		c.corrupt(w)
		require.Positive(t, w.clockJumps().violated(t)[c.invariant], c.what)
	}
}

func TestViolationsWithMovedClock(t *testing.T) {
	t.Parallel()
	queuedEvent := func(w *world) *history.Event { return w.find(storedEvent, deferredJob, named("job.queued")).Event }
	for _, c := range []struct {
		name, invariant string
		corrupt         func(w *world)
	}{
		{"a job starts before execution_at", early, func(w *world) {
			e := queuedEvent(w)
			e.At = e.At.Add(-time.Millisecond)
		}},
		{"a skipped job is queued with a time after the jump", early, func(w *world) {
			for _, name := range []string{"job.queued", "job.assigned", "job.running", "job.succeeded"} {
				w.find(storedEvent, deferredJob, named(name)).Event.At = w.start.Add(jumpAt + jumpBy + time.Minute)
			}
		}},
		{"a skipped job is never queued", ended, func(w *world) {
			w.row(waitingJob).RunAt = w.start.Add(jumpAt + jumpBy/2)
		}},
		{"an event is streamed before the clock shows its time", streamed,
			func(w *world) { w.find(streams, deferredJob, named("job.queued")).At = w.start.Add(jumpAt / 2) }},
		{"a delivery arrives before the clock shows its time", received,
			func(w *world) { w.find(arrived, deferredJob, named("job.queued")).At = w.start.Add(jumpAt / 2) }},
		{"a response shows a state older than the stream", answered, func(w *world) {
			f := w.find(history.Looked, polledJob)
			last := w.find(history.Streamed, polledJob, named("job.succeeded")).At
			f.Sent, f.At = last.Add(second), last.Add(2*second)
		}},
		{"a valid request is refused as if its time had passed", answered, func(w *world) {
			w.refusedAfterTheJump(jumpBy + time.Hour)
		}},
		{"a delivery waits after it became due", delivered,
			func(w *world) {
				failedDelivery(func(d *history.Delivery) { d.State, d.Next = "PENDING", w.end().Add(-second) })(w)
			}},
	} {
		w := soundWorld().clockJumps()
		c.corrupt(w)
		require.Positive(t, w.violated(t)[c.invariant], c.name)
	}

	w := soundWorld().clockJumps() // the refusal is right, because the clock jumped past execution_at
	w.refusedAfterTheJump(jumpBy / 2)
	require.Empty(t, w.violated(t))
}

func (w *world) refusedAfterTheJump(ahead time.Duration) {
	s, sent := w.refused(), w.start.Add(jumpAt+second)
	s.WorkKind, s.ExecutionAt, s.Tries[0].Sent, s.Tries[0].Answered = "SCHEDULED_ON_TIME", w.start.Add(jumpAt+ahead), sent, sent
}

func TestMovesSeenDuringRun(t *testing.T) {
	t.Parallel()
	w := soundWorld().clockJumps().without(Rows, rowFacts...)
	require.NotEmpty(t, w.violated(t), "the moves are unknown without rows")
	w.run.Moves = w.run.Collected.Moves
	require.Empty(t, w.violated(t))
}

func (w *world) runOf(schedule string, job int, due time.Time) {
	for _, kind := range []history.Kind{storedJob, history.ListedJob} {
		shown := w.find(kind, job).Shown
		shown.ScheduleID, shown.ScheduledFor = schedule, due
	}
}

func (w *world) scheduled(job int, due time.Duration) {
	at := w.find(storedJob, job).Shown.CreatedAt.Add(due)
	w.runOf("schedule-1", job, at)
	w.add(history.Fact{At: w.start, Kind: history.Scheduled, Schedule: &history.Schedule{
		ID: "schedule-1", Interval: time.Second, CreatedAt: at.Add(-time.Second), EndAt: at,
	}})
}

func (w *world) theSchedule() *history.Schedule {
	for i := range w.facts {
		if s := w.facts[i].Schedule; s != nil {
			return s
		}
	}
	return nil
}

var scheduleCorruptions = []corruption{
	{"0 jobs exist for the due time 03:04:23.000000Z of schedule schedule-1, expected 1", scheduled, 0, func(w *world) {
		s := w.theSchedule()
		s.EndAt = s.EndAt.Add(s.Interval)
	}, true},
	{"2 jobs exist for the due time 03:04:22.000000Z of schedule schedule-1, expected 1", scheduled, 0,
		func(w *world) { w.runOf("schedule-1", failingJob, w.theSchedule().EndAt) }, true},
	{"the job is for 03:04:21.999000Z, which is not a due time of its schedule", scheduled, failingJob,
		func(w *world) { w.runOf("schedule-1", failingJob, w.theSchedule().EndAt.Add(-time.Millisecond)) }, true},
	{"but was created earlier, at 03:04:22.000000Z", scheduled, emittingJob, func(w *world) {
		due := w.theSchedule().EndAt.Add(time.Second)
		*w.theSchedule() = history.Schedule{ID: "schedule-1", Interval: time.Second, CreatedAt: due.Add(-time.Second), EndAt: due}
		w.runOf("schedule-1", emittingJob, due)
	}, true},
	{"schedule schedule-1 has 1 jobs outside its due times, although no extra run was requested", scheduled, 0, func(w *world) {
		for _, kind := range []history.Kind{storedJob, history.ListedJob} {
			w.find(kind, failingJob).Shown.ScheduleID = "schedule-1"
		}
	}, true},
	{"the job comes from schedule schedule-2, which was never created", accepted, failingJob,
		func(w *world) { w.runOf("schedule-2", failingJob, w.start) }, true},
	{"the job comes from a schedule of tenant 0", foreign, othersJob, func(w *world) {
		w.runOf("schedule-1", othersJob, w.theSchedule().EndAt)
		w.runOf("", emittingJob, w.start)
		w.theSchedule().CreatedAt = w.theSchedule().EndAt.Add(-time.Second)
	}, false},
}
