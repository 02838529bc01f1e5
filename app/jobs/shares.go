package jobs

import (
	"fmt"
	"math"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Limits are the maximum numbers of jobs, of all clients together and of each client.
type Limits struct {
	Active, Queued             int
	ClientActive, ClientQueued int
	// ClientRate is how many jobs a client can submit per minute.
	ClientRate int
}

// shares checks the limits per client. The caller holds Capacity.mu.
//
// Counting the jobs of each client costs more than counting all jobs together. So a count lists only clients with more than `few` jobs.
// Every other client is assumed to have `few` jobs. If the limit per client is at least fewJobs, `few` is half of that limit. For lower
// limits, `few` is 0, and a count lists all clients.
type shares struct {
	Limits
	few int // a count lists only clients with more jobs than this

	counted map[job.ID]job.Load
	rest    job.Load            // assumed load of each client that `counted` does not list
	mine    map[job.ID]job.Load // reserved in this process since the last count began
	room    int                 // smallest free capacity among the clients that submitted jobs since the last count
}

func newShares(limits Limits) shares {
	s := shares{Limits: limits, mine: map[job.ID]job.Load{}, room: math.MaxInt}
	if share := min(s.ClientActive, s.ClientQueued); share >= fewJobs {
		s.few = share / 2
	}
	return s
}

func (s *shares) unlimited() bool { return s.ClientActive >= s.Active && s.ClientQueued >= s.Queued }

func (s *shares) refusal(client job.ID, jobs job.Load) error {
	if s.unlimited() {
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
		return errShare("unfinished jobs", s.ClientActive)
	case full(queued, jobs.Queued, s.ClientQueued):
		return errShare("jobs in QUEUED", s.ClientQueued)
	}
	return nil
}

func errShare(what string, share int) error {
	return &job.Error{Code: job.CodeQueueFull, RetryAfter: capacityInterval, Detail: fmt.Sprintf(
		"This client has reached its limit of %d %s. Nothing was accepted. Wait until some jobs end, or cancel some.", share, what)}
}

func (s *shares) add(client job.ID, jobs job.Load, sign int) {
	if s.unlimited() {
		return
	}
	sum := s.mine[client].Plus(jobs, sign)
	if sum == (job.Load{}) {
		delete(s.mine, client)
		return
	}
	s.mine[client] = sum
}

// mayMatter reports whether one client could have more than `few` jobs.
func (s *shares) mayMatter(total job.Load) bool { return !s.unlimited() && total.Active > s.few }

// counts stores the result of a count. `counted` is nil if the jobs of each client were not counted.
func (s *shares) counts(counted map[job.ID]job.Load, total job.Load) {
	s.counted, s.room = counted, math.MaxInt
	s.rest = job.Load{Active: min(total.Active, s.few), Queued: min(total.Queued, s.few)}
}

// mayBeFull reports whether other processes may have filled a client's limit. `age` is the time since the last count.
func (s *shares) mayBeFull(age time.Duration) bool {
	elsewhere := min(maxRate*(age+capacityInterval).Seconds(), float64(s.ClientRate)*(1+age.Minutes()))
	return float64(s.room) <= elsewhere
}

func full(there, more, limit int) bool { return more > 0 && there+more > limit }
