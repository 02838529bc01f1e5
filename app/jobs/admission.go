package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Admission limits the submissions of clients.
type Admission struct {
	Pauses   func() job.Pauses
	Capacity *Capacity
	// Storage counts units of job.WeightUnit against a client's daily storage.
	Storage         func(ctx context.Context, client job.ID, units int) job.Allowance
	ProvenCallbacks bool // whether callbacks must have the origin of a webhook that passed its challenge
}

// drainedRetry is the Retry-After of submissions that a pause refuses. It is fixed, because the end of a pause is unknown.
const drainedRetry = 10 * time.Second

// admit reserves capacity for all of the jobs, or returns an error. It sets the Lease of each job. The caller must call end on the
// reservation.
func (s *Service) admit(ctx context.Context, client job.ID, jobs []job.Job) (*reservation, error) {
	if s.Admission == nil {
		return nil, nil
	}
	pauses := s.Admission.Pauses()
	for i := range jobs {
		if p := pauses.Refuses(jobs[i].WorkKind, client); p != nil {
			return nil, drained(p)
		}
	}
	room, err := s.Admission.reserve(ctx, client, loadOf(jobs))
	if err != nil {
		return nil, err
	}
	if err := s.allowStorage(ctx, client, jobs); err != nil {
		room.end(ctx, false, nil)
		return nil, err
	}
	for i := range jobs {
		jobs[i].Lease = room.leased()
	}
	return room, nil
}

func drained(p *job.Pause) error {
	of := map[job.PauseScope]string{
		job.PauseAll: "jobs", job.PauseKind: "jobs of the work kind " + p.Target, job.PauseClient: "jobs of this client",
	}[p.Scope]
	return &job.Error{Code: job.CodeQueueFull, RetryAfter: drainedRetry,
		Detail: "The operator has stopped accepting " + of + ". Nothing was accepted; jobs accepted before still run."}
}

func (a *Admission) reserve(ctx context.Context, client job.ID, jobs job.Load) (*reservation, error) {
	if a == nil {
		return nil, nil
	}
	return a.Capacity.reserve(ctx, client, jobs)
}

func (s *Service) allowStorage(ctx context.Context, client job.ID, jobs []job.Job) error {
	weight := 0
	for i := range jobs {
		weight += jobs[i].Weight(s.receivers(client, jobs[i].Callback))
	}
	if weight == 0 {
		return nil
	}
	a := s.Admission.Storage(ctx, client, weight)
	if a.OK {
		return nil
	}
	return &job.Error{Code: job.CodeRateLimited, RetryAfter: a.RetryAfter, Detail: fmt.Sprintf(
		"The jobs of this client may store %d MiB a day. This includes params and results over 16 KiB, emitted events, deliveries to "+
			"more than one receiver, and the responses of receivers. Each is rounded up to a multiple of 16 KiB. "+
			"The daily limit leaves no room for the %d KiB of this submission. Nothing was accepted.",
		a.Limit*job.WeightUnit>>20, weight*job.WeightUnit>>10)}
}

func (s *Service) receivers(client job.ID, callback string) int {
	n := s.Receivers(client)
	if callback != "" {
		n++
	}
	return n
}

// Deliveries returns how many deliveries a job's emitted events can cause, over all attempts.
func (s *Service) Deliveries(r *job.Request) int {
	return r.Emitted(s.cfg.MaxAttempts) * s.receivers(r.ClientID, r.Callback)
}

// Deferred jobs do not count as queued.
func loadOf(jobs []job.Job) (sum job.Load) {
	for i := range jobs {
		sum.Active++
		if jobs[i].ExecutionAt == nil {
			sum.Queued++
		}
	}
	return sum
}

// oneQueued is the capacity that a job's next attempt needs.
var oneQueued = job.Load{Active: 1, Queued: 1}
