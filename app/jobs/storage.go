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
		weight += jobs[i].Weight()
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
			"least in each attempt, with what receivers answer. There is no room for the %d KiB of this submission. Nothing was accepted.",
		a.Limit*job.WeightUnit>>20, weight*job.WeightUnit>>10)}
}
