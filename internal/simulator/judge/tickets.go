package judge

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// TicketOf reads a correlation id, as the run wrote it.
func TicketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

// ticketFlags has a byte for each ticket: it shows what is wrong across jobs.
type ticketFlags []byte

// What is known of a ticket.
const (
	ticketSent     = 1 << iota // its submission is in the history
	ticketAccepted             // a try was answered with a job
	ticketOpen                 // a try may have made a job, though no answer said so
	ticketHasJob
	ticketHasTwo
)

func (t ticketFlags) mark(ticket int64, flags byte) {
	if ticket < 1 || ticket >= int64(len(t)) {
		return // reported where the job is checked
	}
	if t[ticket]&flags&ticketHasJob != 0 {
		flags |= ticketHasTwo
	}
	t[ticket] |= flags
}

// flagsOf gives what a submission says of its ticket.
func flagsOf(s *history.Submission) byte {
	flags := byte(ticketSent)
	for _, try := range s.Tries {
		if try.Accepted() {
			flags |= ticketAccepted
		} else if try.Unknown() {
			flags |= ticketOpen
		}
	}
	return flags
}

// violation says what is wrong with a ticket, "" for nothing.
func (t ticketFlags) violation(ticket int64) (invariant, what string) {
	switch flags := t[ticket]; {
	case flags&ticketHasTwo != 0:
		return keyed, fmt.Sprintf("ticket %d has more than one job", ticket)
	case flags&ticketHasJob == 0:
	case flags&ticketSent == 0:
		return accepted, fmt.Sprintf("the job has ticket %d, which was never sent", ticket)
	case flags&(ticketAccepted|ticketOpen) == 0:
		return accepted, fmt.Sprintf("ticket %d was refused, and its job exists", ticket)
	}
	return "", ""
}

// brokenTicket is a ticket's violation with the facts of its jobs.
type brokenTicket struct {
	Violation
	facts  []history.Fact
	latest *history.Job
}

// add makes the violation one of the job that was made last.
func (t *brokenTicket) add(j *jobFacts) {
	t.facts = append(t.facts, j.facts...)
	if j.job == nil {
		return
	}
	t.What += ", " + j.id
	if t.latest == nil || j.job.CreatedAt.After(t.latest.CreatedAt) {
		t.latest, t.Job = j.job, j.id
	}
}

// checkTickets reads the history again for broken tickets, if there are any.
func (b *verdictBuilder) checkTickets(ctx context.Context, r Reader) error {
	broken := map[int64]*brokenTicket{}
	for n := int64(1); n < int64(len(b.tickets)); n++ {
		if b.tickets[n] != 0 {
			b.verdict.Checked[keyed]++
		}
		if invariant, what := b.tickets.violation(n); invariant == "" {
			continue
		} else if len(broken) < maxViolations {
			broken[n] = &brokenTicket{Violation: Violation{Invariant: invariant, Ticket: n, What: what}}
		} else {
			b.countViolation(invariant)
		}
	}
	if len(broken) == 0 {
		return nil
	}
	err := r.Each(history.Loose, func(f history.Fact) error {
		if t := broken[f.Ticket]; t != nil {
			t.facts = append(t.facts, f)
		}
		return nil
	})
	for bucket := 0; bucket < history.Buckets && err == nil; bucket++ {
		err = r.Jobs(bucket, func(jobs map[string][]history.Fact) error {
			for id, facts := range jobs {
				j := newJobFacts(id, facts, b.run)
				if t := broken[j.ticket]; t != nil {
					t.add(j)
				}
			}
			return context.Cause(ctx)
		})
	}
	for _, t := range broken {
		b.add([]Violation{t.Violation}, nil, t.facts)
	}
	return err
}
