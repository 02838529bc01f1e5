package jobs

import (
	"context"
	"fmt"

	"github.com/forgerun/forgerun/job"
)

// Storage counts what the jobs of a client bring in a day, in units of job.WeightUnit.
type Storage interface {
	AllowUnits(ctx context.Context, client job.ID, units int) job.Allowance
}

// weigh counts the weight of a client's jobs, of all of them or of none if there is no room for it today.
func (s *Service) weigh(ctx context.Context, client job.ID, jobs ...job.Job) error {
	weight := 0
	for i := range jobs {
		weight += jobs[i].Weight(s.receivers(client, jobs[i].Callback))
	}
	if weight == 0 || s.deps.Storage == nil {
		return nil
	}
	a := s.deps.Storage.AllowUnits(ctx, client, weight)
	if a.OK {
		return nil
	}
	return &job.Error{Code: job.CodeRateLimited, RetryAfter: a.RetryAfter, Detail: fmt.Sprintf(
		"The jobs of this client may bring %d MiB a day, of params and results beyond 16 KiB and of events that they emit, each 16 KiB at "+
			"least in each attempt, of deliveries to more than one receiver, 16 KiB for each two, and of what receivers answer. "+
			"There is no room for the %d KiB of this submission. Nothing was accepted.",
		a.Limit*job.WeightUnit>>20, weight*job.WeightUnit>>10)}
}

// receivers is how many receivers the events of a job have.
func (s *Service) receivers(client job.ID, callback string) (n int) {
	if s.deps.Receivers != nil {
		n = s.deps.Receivers.Webhooks(client)
	}
	if callback != "" {
		n++
	}
	return n
}

// Deliveries returns how many deliveries the events make that a job may emit, in all of its attempts.
func (s *Service) Deliveries(r *job.Request) int {
	return r.Emitted(s.cfg.MaxAttempts) * s.receivers(r.ClientID, r.Callback)
}
