package jobs

import (
	"fmt"
	"math"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Limits are how many jobs there may be, in all and of one client. A client's
// limit that is not below that of all is none.
type Limits struct {
	Active, Queued             int
	ClientActive, ClientQueued int
	// ClientRate is how many jobs one client can submit in a minute.
	ClientRate int
}

// shares is what each client holds of the limits. The caller holds the lock of
// Capacity.
//
// To count by client costs more than to count in all, so it is done only when one
// of them could hold much. Of large shares, clients that hold less than half of
// one are not counted; that half is assumed of them until they hold it.
type shares struct {
	Limits
	few int // what is assumed of clients that are not in counted, at most

	counted map[job.ID]job.Load // from storage
	rest    job.Load            // a bound for each client that is not in counted
	mine    map[job.ID]job.Load // reserved in this process and maybe not in counted
	room    int                 // the least that a client had left that asked since the count began
}

func newShares(limits Limits) shares {
	s := shares{Limits: limits, mine: map[job.ID]job.Load{}, room: math.MaxInt}
	if share := min(s.ClientActive, s.ClientQueued); share >= fewJobs {
		s.few = share / 2
	}
	return s
}

// none reports whether one client may hold as much as all.
func (s *shares) none() bool { return s.ClientActive >= s.Active && s.ClientQueued >= s.Queued }

// refusal says why there is no room for jobs of a client, nil if there is.
func (s *shares) refusal(client job.ID, jobs job.Load) error {
	if s.none() {
		return nil
	}
	has, listed := s.counted[client]
	if !listed {
		has = s.rest
	}
	mine := s.mine[client]
	active, queued := has.Active+mine.Active, has.Queued+mine.Queued
	s.room = min(s.room, s.ClientActive-active-jobs.Active, s.ClientQueued-queued-jobs.Queued)
	switch {
	case full(active, jobs.Active, s.ClientActive):
		return errShare("jobs that are not final", s.ClientActive)
	case full(queued, jobs.Queued, s.ClientQueued):
		return errShare("jobs in QUEUED", s.ClientQueued)
	}
	return nil
}

func errShare(what string, share int) error {
	return &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval, Detail: fmt.Sprintf(
		"This client's share is full: one client may have %d %s. Nothing was accepted. Wait until some have ended, or cancel some.", share, what)}
}

// add counts jobs that are reserved here, or with sign -1 not any more.
func (s *shares) add(client job.ID, jobs job.Load, sign int) {
	if s.none() {
		return
	}
	sum := s.mine[client].Plus(jobs, sign)
	if sum == (job.Load{}) {
		delete(s.mine, client)
		return
	}
	s.mine[client] = sum
}

// mayMatter reports whether, with so many jobs in all, one client could hold more
// than is assumed of each.
func (s *shares) mayMatter(total job.Load) bool { return !s.none() && total.Active > s.few }

// counts takes a count by client, nil if it was not needed, of so many in all.
func (s *shares) counts(counted map[job.ID]job.Load, total job.Load) {
	s.counted, s.room = counted, math.MaxInt
	s.rest = job.Load{Active: min(total.Active, s.few), Queued: min(total.Queued, s.few)}
}

// mayBeFull reports whether a client that asked could since, at other processes,
// have taken all that it had left, before the next look.
func (s *shares) mayBeFull(age time.Duration) bool {
	elsewhere := min(maxRate*(age+capacityInterval).Seconds(), float64(s.ClientRate)*(1+age.Minutes()))
	return float64(s.room) <= elsewhere
}

// full reports whether there is no room for more; nothing always fits.
func full(there, more, limit int) bool { return more > 0 && there+more > limit }
