package judge

import (
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// scheduleRuns is a schedule with the number of jobs of each of its due times, in microseconds.
type scheduleRuns struct {
	history.Schedule
	tenant int
	jobs   map[int64]int
	others int // jobs for no time
}

// add counts a job, of a schedule that is not known nothing.
func (s *scheduleRuns) add(due *time.Time) {
	switch {
	case s == nil:
	case due == nil:
		s.others++
	default:
		s.jobs[due.UnixMicro()]++
	}
}

// checkRun: a run is of a schedule of its client, for a due time of it, and not early. That each due time has one is
// checked across jobs.
func (c *checker) checkRun() {
	c.look(scheduled)
	s := c.run.schedules[c.job.Schedule]
	if s == nil {
		c.must(false, accepted, "the job is a run of schedule %s, which nobody created", c.job.Schedule)
		return
	}
	c.must(s.tenant == c.tenant, foreign, "the job is a run of a schedule of tenant %d", s.tenant)
	due := c.job.ScheduledFor
	if due == nil {
		return // which is counted
	}
	after := due.Sub(s.CreatedAt)
	c.must(after > 0 && after%s.Interval == 0 && !due.After(s.EndAt), scheduled, "the job stands for %s, which is no due time of its schedule",
		clock(due))
	c.must(!c.job.CreatedAt.Before(*due), scheduled, "the job stands for %s, and was created before, at %s", clock(due),
		clock(&c.job.CreatedAt))
}

// checkSchedules: each due time has one job. The run has waited for the end of its schedules, unless it was cut short.
func (b *verdictBuilder) checkSchedules() {
	if !b.run.complete(Rows) && !b.run.complete(Lists) {
		return
	}
	b.look(scheduled) // that there is none counts as checked
	for id, s := range b.run.schedules {
		b.look(scheduled)
		b.must(s.others == 0, history.Fact{}, scheduled, "schedule %s has %d runs for no due time, and nobody triggered it", id, s.others)
		for due := s.CreatedAt.Add(s.Interval); !due.After(s.EndAt); due = due.Add(s.Interval) {
			n := s.jobs[due.UnixMicro()]
			b.must(n == 1, history.Fact{}, scheduled, "%d jobs stand for %s of schedule %s, not one", n,
				clock(&due), id)
		}
	}
}
