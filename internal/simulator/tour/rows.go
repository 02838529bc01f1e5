package tour

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

const (
	punctual = 2 * time.Second // how late a job may be queued after its time
	recovery = 5 * time.Second // how late after the service is back
)

// noKind is the row of what is about the service, or about no job of the tour.
const noKind = "(no kind)"

// rows hold the stories against what is expected, and put what the judge found with
// the kinds that it is about.
func (t *tour) rows(stories map[string]*story, verdict *judge.Verdict, timeUp bool) (rows []Row) {
	found, of := map[string][]string{}, map[string]string{}
	for kind, s := range stories {
		for _, job := range s.jobs {
			of[job] = kind
		}
	}
	for _, v := range verdict.Violations {
		kind := cmp.Or(of[v.Job], t.tickets[v.Ticket], noKind)
		if !slices.Contains(found[kind], v.What) { // the same may be found in several places
			found[kind] = append(found[kind], v.What)
		}
	}
	for source, why := range t.trial.Missing() {
		found[noKind] = append(found[noKind], fmt.Sprintf("the %s could not be read: %s", source, why))
	}
	for _, kind := range kindsOf(t.scenario) {
		s := stories[kind]
		if s == nil {
			s = &story{kind: kind}
		}
		rows = append(rows, t.row(s, found[kind], timeUp))
	}
	if len(found[noKind]) > 0 {
		rows = append(rows, Row{Kind: noKind, Expected: "-", Findings: found[noKind]})
	}
	return rows
}

func (t *tour) row(s *story, judged []string, timeUp bool) Row {
	r := Row{Kind: s.kind, Expected: cmp.Or(expectations[s.kind], client.Succeeded), Got: s.outcome()}
	if s.end != nil {
		r.Attempts = s.end.Attempt
	}
	if s.report != nil {
		r.Duration = time.Duration(s.report.DurationMS) * time.Millisecond
	}
	ended := (&client.Job{State: s.state}).Final() || r.Got == r.Expected
	switch why := t.undelivered(s); {
	case why != "":
		r.Open = true
		r.Notes = append(r.Notes, fmt.Sprintf("the service cannot deliver to the receiver at %s (%s): set FORGERUN_WEBHOOK_ALLOW_PRIVATE=true "+
			"at the service if that is a private or loopback address, or give one that it can reach with --receiver-addr and --receiver-url",
			cmp.Or(t.o.ReceiverURL, t.o.ReceiverAddr), why))
	case timeUp && !ended:
		r.Findings = []string{fmt.Sprintf("not finished within %s; last seen %s", t.o.Timeout, cmp.Or(s.state, "(none)"))}
	default:
		t.compare(&r, s)
		r.Findings = append(r.Findings, judged...) // what is particular to the kind says most
		if !r.Cut && r.Got != r.Expected && len(r.Findings) == 0 {
			r.differs("got %s, expected %s", cmp.Or(r.Got, "(none)"), r.Expected)
		}
	}
	return r
}

func (r *Row) differs(format string, args ...any) {
	r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
}

// notReached are the errors of tries that the receiver did not see.
var notReached = []string{"ADDRESS_FORBIDDEN", "CONNECTION_FAILED", "CONNECTION_LOST", "NAME_NOT_RESOLVED", "TLS_FAILED", "TIMEOUT"}

// undelivered is why nothing of the kind can come to the receiver, "" if it can.
func (t *tour) undelivered(s *story) string {
	switch d := s.delivery; {
	case !strings.HasPrefix(s.kind, "WEBHOOK_"):
	case t.unreachable != "":
		return t.unreachable
	case d != nil && !s.received && slices.Contains(notReached, d.Error):
		return d.Error
	}
	return ""
}

// compare holds what became of the kind against what is particular to it.
func (t *tour) compare(r *Row, s *story) {
	if d := s.delivery; d != nil && d.State == "PENDING" {
		r.Cut = true
		r.Notes = append(r.Notes, fmt.Sprintf("after %s the delivery is still %s: %d tries made, the next one due at %s; "+
			"its end was not waited for (--webhook-patience)", t.o.Patience, d.State, d.Attempts, d.Next.UTC().Format("15:04:05.000Z")))
		if t.o.DeliveryTries > 0 {
			r.differs("the delivery was not complete within %s", t.o.Patience)
		}
		if r.Kind != "WEBHOOK_RETRIES_EXHAUSTED" && d.Attempts > 1 {
			r.differs("the delivery is still %s after %d tries, expected %s", d.State, d.Attempts, r.Expected)
		}
	}
	queuedAt, queued := s.entered(client.Queued)
	late := queuedAt.Sub(s.due)
	switch o := t.outage; {
	case r.Kind == "SCHEDULED_ON_TIME" && queued && late > punctual:
		r.differs("the job was queued %s after its time, allowed are %s", show(late), punctual)
	case r.Kind != "SCHEDULED_LATE_RECOVERY" || o == nil:
	case !o.Down.Before(s.due):
		r.differs("the service took until %s after the job's time to stop, so nothing was shown", show(o.Down.Sub(s.due)))
	case queued && queuedAt.Before(o.Restarted):
		r.differs("the job was queued %s before the service was started again", show(o.Restarted.Sub(queuedAt)))
	case queued && queuedAt.Sub(o.Ready) > recovery:
		r.differs("the job was queued %s after the service was back, allowed are %s", show(queuedAt.Sub(o.Ready)), recovery)
	}
	if _, ran := s.entered(client.Running); r.Kind == "CANCEL_DURING_RUN" && s.state == client.Canceled && !ran {
		r.differs("the job was canceled before it ran")
	}
}
