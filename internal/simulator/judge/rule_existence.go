package judge

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkExistence checks that an accepted job exists and has the submitted values.
func (c *checker) checkExistence() {
	submitted := c.byKind[history.Submitted]
	rows, lists := c.run.complete(Rows), c.run.complete(Lists)
	if !rows && !lists {
		return
	}
	if c.job == nil {
		c.must(len(submitted) == 0, accepted, "the job was accepted, but no longer exists")
		return
	}
	c.must(!rows || c.row != nil, accepted, "the API lists the job, but the database does not have it")
	c.must(!lists || c.row == nil || len(c.byKind[history.ListedJob]) > 0, accepted, "the database has the job, but the API does not list it")
	if c.job.ScheduleID != "" {
		c.checkRun()
		return
	}
	ticket, ours := TicketOf(c.run.Run, c.job.CorrelationID)
	c.must(ours && ticket <= c.run.Tickets, accepted, "the job has correlation id %q, which was never sent", c.job.CorrelationID)
	for _, f := range submitted {
		c.must(!ours || f.Ticket == ticket, accepted, "the response to submission %d shows the job of submission %d", f.Ticket, ticket)
	}
	s, j := c.submission, c.job
	if s == nil {
		return
	}
	same := func(what string, sent, stored any) {
		c.must(sent == stored, accepted, "the client sent %s %v, but the job has %v", what, sent, stored)
	}
	same("type", s.Type, j.Type)
	same("work kind", cmp.Or(s.WorkKind, j.WorkKind), j.WorkKind)
	same("batch", s.Batch, j.BatchID)
	c.must(sameTime(s.ExecutionAt, j.ExecutionAt), accepted, "the client sent execution_at %s, but the job has %s", clock(s.ExecutionAt),
		clock(j.ExecutionAt))
	if r := c.row; r != nil {
		same("params of digest", s.Params, r.ParamsDigest)
		same("auto_retry", s.AutoRetry, r.AutoRetry)
	}
}

// checkKey checks that at most one try of a submission created the job. The idempotency key must be stored until it expires.
func (c *checker) checkKey() {
	if c.submission == nil {
		return
	}
	made := 0
	for _, f := range c.byKind[history.Submitted] {
		for _, t := range deref(f.Submission).Tries {
			made += count(t.Accepted() && !t.Replayed && t.Job == c.id)
		}
	}
	c.must(made <= 1, keyed, "%d tries with the same key each got a 202 response, as if each had created the job", made)
	if c.row != nil && c.submission.Key != "" {
		kept := c.run.latest(c.run.asOf(c.source)).Sub(c.row.CreatedAt) < cmp.Or(c.run.KeyWindow, 24*time.Hour)
		c.must(c.row.Keys > 0 || !kept, keyed, "the job's idempotency key is not stored: another try would create a second job")
	}
}

// sameTime compares times in microseconds, because the service truncates or rounds times to microseconds.
func sameTime(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond)) || a.Round(time.Microsecond).Equal(b.Round(time.Microsecond))
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "(none)"
	}
	return t.UTC().Format("15:04:05.000000Z")
}

var exposures = map[history.Kind]string{
	history.Submitted: "an answer to a submission", history.Looked: "a poll", history.ListedJob: "a list", history.APIReport: "a report",
	history.APIDelivery: "a list of deliveries", history.Streamed: "a stream", history.Received: "a delivery",
	history.StoredDeliver: "a stored delivery", history.StoredJob: "a row", history.StoredEvent: "a stored event",
}

func exposure(f *history.Fact) string {
	switch {
	case f.Kind == history.Looked && (f.Shown == nil || f.Shown.State == ""), f.Kind == history.APIReport && f.Report == nil,
		f.Event != nil && isClientEvent(f.Event.Name), f.Delivery != nil && isClientEvent(f.Delivery.EventName):
		return ""
	}
	return exposures[f.Kind]
}

// checkOwners checks that only the owner of a job can see or change the job.
func (c *checker) checkOwners() {
	owned := c.tenant >= 0
	if !owned && !c.run.complete(Rows) && !c.run.complete(Lists) {
		return // the owner is unknown
	}
	for i := range c.facts {
		f := &c.facts[i]
		if source, ok := sourceOf[f.Kind]; ok && !c.run.complete(source) {
			continue
		}
		if a := f.Action; f.Kind == history.Acted && a != nil && owned && f.Tenant != c.tenant {
			c.must(a.Status < 200 || a.Status > 299, foreign, "tenant %d could %s the job of tenant %d", f.Tenant, a.Verb, c.tenant)
		}
		how := exposure(f)
		if how == "" {
			continue
		}
		if !owned {
			c.must(false, foreign, "%s of tenant %d shows a job that was never submitted", how, f.Tenant)
			return
		}
		c.must(f.Tenant == c.tenant, foreign, "%s of tenant %d shows the job of tenant %d", how, f.Tenant, c.tenant)
		if w := c.run.webhook(f); w != nil {
			c.must(w.Tenant == c.tenant, foreign, "%s goes to a webhook of tenant %d, but the job belongs to tenant %d", how, w.Tenant, c.tenant)
		}
	}
}

// checkOutsiders checks that a request of another tenant gets 404, even if the job was deleted.
func (c *checker) checkOutsiders() {
	for _, f := range c.byKind[history.Intruded] {
		a := f.Action
		if a == nil || f.Tenant == c.tenant || a.Status == 0 || a.Status == http.StatusTooManyRequests || a.Status >= 500 {
			continue
		}
		c.must(a.Status == http.StatusNotFound, foreign, "tenant %d requested the job of tenant %d (%s) and got %d %s instead of 404",
			f.Tenant, c.tenant, a.Verb, a.Status, a.Code)
	}
}

// TicketOf returns the ticket number in a correlation id of the run.
func TicketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

// across has the data for checks that need several jobs. `tickets` has the flags of each ticket, and `schedules` maps ids to schedules.
type across struct {
	mu        sync.Mutex
	tickets   []byte
	schedules map[string]*scheduleRuns
}

const (
	ticketSent     = 1 << iota // the ticket was submitted
	ticketAccepted             // a response to a try contained a job id
	ticketOpen                 // after a try, it is unknown whether the service created a job
	ticketHasJob
)

func (a *across) mark(ticket int64, flags byte) (before byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ticket >= 1 && ticket < int64(len(a.tickets)) { // checkExistence reports jobs with other ticket numbers
		before = a.tickets[ticket]
		a.tickets[ticket] |= flags
	}
	return before
}

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

// checkTicket checks that no ticket has two jobs, and that a refused ticket has no job. It needs the flags of refused submissions, which
// checkLoose has set before.
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
	c.must(known&ticketHasJob == 0, keyed, "submission %d has more than one job", ticket)
	c.must(known&ticketSent > 0, accepted, "the job names submission %d, which was never sent or got another job", ticket)
	c.must(known&(ticketAccepted|ticketOpen) > 0 || known&ticketSent == 0, accepted, "submission %d was refused, but its job exists", ticket)
}

// scheduleRuns counts the jobs of a schedule for each due time.
type scheduleRuns struct {
	history.Schedule
	tenant int
	jobs   map[int64]int
	others int // jobs without a due time
}

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

// checkRun checks a job of a schedule. The job must belong to the schedule's client and to one of the due times. The service must not
// create the job before that due time.
func (c *checker) checkRun() {
	s := c.run.across.schedules[c.job.ScheduleID]
	if s == nil {
		c.must(false, accepted, "the job comes from schedule %s, which was never created", c.job.ScheduleID)
		return
	}
	c.must(s.tenant == c.tenant, foreign, "the job comes from a schedule of tenant %d", s.tenant)
	due := c.job.ScheduledFor
	if due.IsZero() {
		return // checkSchedules reports jobs without a due time
	}
	after := due.Sub(s.CreatedAt)
	c.must(after > 0 && after%s.Interval == 0 && !due.After(s.EndAt), scheduled, "the job is for %s, which is not a due time of its schedule",
		clock(due))
	c.must(!c.job.CreatedAt.Before(due), scheduled,
		"the job is for the due time %s, but was created earlier, at %s", clock(due), clock(c.job.CreatedAt))
}

// checkSchedules checks that each due time has exactly one job. All due times have passed, because a run waits for the end of its
// schedules.
func (c *checker) checkSchedules() {
	if !c.run.complete(Rows) && !c.run.complete(Lists) {
		return
	}
	c.looked[scheduled]++ // in a run without schedules, the invariant counts as checked too
	for id, s := range c.run.across.schedules {
		c.must(s.others == 0, scheduled, "schedule %s has %d jobs outside its due times, although no extra run was requested", id, s.others)
		for due := s.CreatedAt.Add(s.Interval); !due.After(s.EndAt); due = due.Add(s.Interval) {
			n := s.jobs[due.UnixMicro()]
			c.must(n == 1, scheduled, "%d jobs exist for the due time %s of schedule %s, expected 1", n, clock(due), id)
		}
	}
}
