package judge

import (
	"cmp"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkExistence: an accepted job exists, and an existing job was requested with these values. checkTicket checks that no two jobs have
// one ticket.
func (c *checker) checkExistence() {
	submitted := c.byKind[history.Submitted]
	rows, lists := c.run.complete(Rows), c.run.complete(Lists)
	if !rows && !lists {
		return
	}
	if c.job == nil {
		c.must(len(submitted) == 0, accepted, "the job was accepted, and is not there any more")
		return
	}
	c.must(!rows || c.row != nil, accepted, "the API lists the job, and the rows do not have it")
	c.must(!lists || c.row == nil || len(c.byKind[history.ListedJob]) > 0, accepted, "the rows have the job, and the API does not list it")
	if c.job.ScheduleID != "" {
		c.checkRun()
		return
	}
	ticket, ours := TicketOf(c.run.Run, c.job.CorrelationID)
	c.must(ours && ticket <= c.run.Tickets, accepted, "the job has correlation id %q, which was never sent", c.job.CorrelationID)
	for _, f := range submitted {
		c.must(!ours || f.Ticket == ticket, accepted, "the answer to ticket %d shows the job of ticket %d", f.Ticket, ticket)
	}
	s, j := c.submission, c.job
	if s == nil {
		return
	}
	same := func(what string, sent, stored any) {
		c.must(sent == stored, accepted, "the job was sent with %s %v, and has %v", what, sent, stored)
	}
	same("type", s.Type, j.Type)
	same("work kind", cmp.Or(s.WorkKind, j.WorkKind), j.WorkKind)
	same("batch", s.Batch, j.BatchID)
	c.must(sameTime(s.ExecutionAt, j.ExecutionAt), accepted, "the job was sent with execution_at %s, and has %s", clock(s.ExecutionAt),
		clock(j.ExecutionAt))
	if r := c.row; r != nil {
		same("params of digest", s.Params, r.ParamsDigest)
		same("auto_retry", s.AutoRetry, r.AutoRetry)
	}
}

// checkKey: the tries of a ticket have one key, so they made one job, and the key is kept.
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
	c.must(made <= 1, keyed, "%d tries with one key were each answered as the one that made the job", made)
	if c.row != nil && c.submission.Key != "" {
		kept := c.run.latest(c.run.asOf(c.source)).Sub(c.row.CreatedAt) < cmp.Or(c.run.KeyWindow, 24*time.Hour)
		c.must(c.row.Keys > 0 || !kept, keyed, "the job's idempotency key is not kept: another try would make another job")
	}
}

// sameTime compares times with the service's precision of microseconds.
func sameTime(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond)) || a.Round(time.Microsecond).Equal(b.Round(time.Microsecond))
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "(none)"
	}
	return t.UTC().Format("15:04:05.000000Z")
}

// exposures are the kinds of facts that show a job to a tenant.
var exposures = map[history.Kind]string{
	history.Submitted: "an answer to a submission", history.Looked: "a poll", history.ListedJob: "a list", history.APIReport: "a report",
	history.APIDelivery: "a list of deliveries", history.Streamed: "a stream", history.Received: "a delivery",
	history.StoredDeliver: "a stored delivery", history.StoredJob: "a row", history.StoredEvent: "a stored event",
}

// exposure returns how a fact shows a job; "" if it does not.
func exposure(f *history.Fact) string {
	switch {
	case f.Kind == history.Looked && (f.Shown == nil || f.Shown.State == ""), f.Kind == history.APIReport && f.Report == nil,
		f.Event != nil && ofNoJob(f.Event.Name), f.Delivery != nil && ofNoJob(f.Delivery.EventName):
		return ""
	}
	return exposures[f.Kind]
}

// checkOwners: only its tenant sees a job or acts on it.
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
			c.must(w.Tenant == c.tenant, foreign, "%s goes to a webhook of tenant %d, the job is of tenant %d", how, w.Tenant, c.tenant)
		}
	}
}

// checkOutsiders: another tenant's request gets the answer for a missing job, never that for a deleted one (410).
func (c *checker) checkOutsiders() {
	for _, f := range c.byKind[history.Intruded] {
		a := f.Action
		if a == nil || f.Tenant == c.tenant || a.Status == 0 || a.Status == http.StatusTooManyRequests || a.Status >= 500 {
			continue
		}
		c.must(a.Status == http.StatusNotFound, foreign, "tenant %d asked for the job of tenant %d (%s) and was answered %d %s",
			f.Tenant, c.tenant, a.Verb, a.Status, a.Code)
	}
}
