package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// tickets holds a byte for each ticket: what crosses jobs is seen here.
type ticketFlags []byte

// What is known of a ticket.
const (
	ticketSent     = 1 << iota // its submission is in the history
	ticketAccepted             // a try was answered with a job
	ticketOpen                 // a try may have made a job, though no answer told one
	ticketHasJob
	ticketHasTwo
)

func newTicketFlags(n int64) ticketFlags { return make(ticketFlags, max(n, 0)+1) }

func (t ticketFlags) mark(ticket int64, bits byte) {
	if ticket < 1 || ticket >= int64(len(t)) {
		return // looked at where the job is
	}
	if t[ticket]&bits&ticketHasJob != 0 {
		bits |= ticketHasTwo
	}
	t[ticket] |= bits
}

// bitsOf tells what a submission says of its ticket.
func flagsOf(s *history.Submission) byte {
	bits := byte(ticketSent)
	for _, try := range s.Tries {
		if try.Accepted() {
			bits |= ticketAccepted
		} else if try.Unknown() {
			bits |= ticketOpen
		}
	}
	return bits
}

// suspect tells what is wrong with a ticket, "" for nothing.
func (t ticketFlags) suspect(ticket int64) (invariant, what string) {
	bits := t[ticket]
	switch {
	case bits&ticketHasTwo != 0:
		return keyed, fmt.Sprintf("ticket %d has more than one job", ticket)
	case bits&ticketHasJob == 0:
	case bits&ticketSent == 0:
		return accepted, fmt.Sprintf("the job has ticket %d, which was never sent", ticket)
	case bits&(ticketAccepted|ticketOpen) == 0:
		return accepted, fmt.Sprintf("ticket %d was refused, and its job exists", ticket)
	}
	return "", ""
}
