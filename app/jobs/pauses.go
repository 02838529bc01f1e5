package jobs

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// drainedRetry is what Retry-After says where submissions are stopped for an unknown time.
const drainedRetry = 10 * time.Second

// stopped gives what operators have stopped, as this process knows it: a second late at most.
func (s *Service) stopped() job.Pauses {
	if s.deps.Pauses == nil {
		return nil
	}
	return s.deps.Pauses.Now()
}

// drained refuses a job of which operators accept no more; nil if they do.
func (s *Service) drained(j *job.Job) error {
	p := s.stopped().Refuses(j.WorkKind, j.ClientID)
	if p == nil {
		return nil
	}
	of := map[job.PauseScope]string{
		job.PauseAll: "jobs", job.PauseKind: "jobs of the work kind " + p.Target, job.PauseClient: "jobs of this client",
	}[p.Scope]
	return &job.Error{Code: job.CodeQueueFull, RetryAfter: drainedRetry,
		Detail: "The operator has stopped taking " + of + " for now. Nothing was accepted; what was accepted before is run."}
}
