package judge

import (
	"strconv"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// TicketOf parses the ticket in a correlation id of the run.
func TicketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

// across is the data across jobs: a byte for each ticket, and the schedules by id.
type across struct {
	mu        sync.Mutex
	tickets   []byte
	schedules map[string]*scheduleRuns
}

// Flags of a ticket.
const (
	ticketSent     = 1 << iota // its submission is in the history
	ticketAccepted             // a try returned a job
	ticketOpen                 // a try may have created a job without an answer
	ticketHasJob
)

// mark adds flags of a ticket, and returns its earlier ones.
func (a *across) mark(ticket int64, flags byte) (before byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ticket >= 1 && ticket < int64(len(a.tickets)) { // checkExistence reports others
		before = a.tickets[ticket]
		a.tickets[ticket] |= flags
	}
	return before
}

// sent marks the ticket of a submission.
func (a *across) sent(f *history.Fact) {
	flags := byte(ticketSent)
	for _, try := range f.Submission.Tries {
		if try.Accepted() {
			flags |= ticketAccepted
		} else if try.Unknown() {
			flags |= ticketOpen
		}
	}
	a.mark(f.Ticket, flags)
}

// checkTicket: each accepted ticket has one job, and a refused one has none. Submissions without a job were marked before.
func (c *checker) checkTicket() {
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission != nil {
			c.run.across.sent(f)
		}
	}
	if c.job == nil {
		return
	}
	c.run.across.addRun(c.job)
	ticket, ours := TicketOf(c.run.Run, c.job.CorrelationID)
	if !ours || ticket > c.run.Tickets {
		return
	}
	known := c.run.across.mark(ticket, ticketHasJob)
	c.must(known&ticketHasJob == 0, keyed, "ticket %d has more than one job", ticket)
	c.must(known&ticketSent > 0, accepted, "the job has ticket %d, which was never sent, or answered with another job", ticket)
	c.must(known&(ticketAccepted|ticketOpen) > 0 || known&ticketSent == 0, accepted, "ticket %d was refused, and its job exists", ticket)
}

// scheduleRuns is a schedule with the number of jobs of each of its due times, in microseconds.
type scheduleRuns struct {
	history.Schedule
	tenant int
	jobs   map[int64]int
	others int // jobs without a due time
}

// addRun counts a job of a known schedule.
func (a *across) addRun(j *history.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := a.schedules[j.ScheduleID]; {
	case s == nil:
	case j.ScheduledFor.IsZero():
		s.others++
	default:
		s.jobs[j.ScheduledFor.UnixMicro()]++
	}
}

// checkRun: a run belongs to a schedule of its client and to one of its due times, and is not early.
func (c *checker) checkRun() {
	s := c.run.across.schedules[c.job.ScheduleID]
	if s == nil {
		c.must(false, accepted, "the job is a run of schedule %s, which was never created", c.job.ScheduleID)
		return
	}
	c.must(s.tenant == c.tenant, foreign, "the job is a run of a schedule of tenant %d", s.tenant)
	due := c.job.ScheduledFor
	if due.IsZero() {
		return // checkSchedules counts it
	}
	after := due.Sub(s.CreatedAt)
	c.must(after > 0 && after%s.Interval == 0 && !due.After(s.EndAt), scheduled, "the job is for %s, which is no due time of its schedule",
		clock(due))
	c.must(!c.job.CreatedAt.Before(due), scheduled, "the job is for %s, and was created before, at %s", clock(due), clock(c.job.CreatedAt))
}

// checkSchedules: each due time has one job. The run has waited for the end of its schedules, unless it was interrupted.
func (c *checker) checkSchedules() {
	if !c.run.complete(Rows) && !c.run.complete(Lists) {
		return
	}
	c.looked[scheduled]++ // no schedule at all counts as checked
	for id, s := range c.run.across.schedules {
		c.must(s.others == 0, scheduled, "schedule %s has %d runs for no due time, and none was triggered", id, s.others)
		for due := s.CreatedAt.Add(s.Interval); !due.After(s.EndAt); due = due.Add(s.Interval) {
			n := s.jobs[due.UnixMicro()]
			c.must(n == 1, scheduled, "%d jobs are for %s of schedule %s, not one", n, clock(due), id)
		}
	}
}
