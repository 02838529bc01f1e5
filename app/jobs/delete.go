package jobs

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Delete removes a final job. If the job was already deleted, Delete returns no error.
func (s *Service) Delete(ctx context.Context, client, id job.ID) error {
	j, unknown := s.Store.Job(ctx, client, id)
	if err := s.Store.Delete(ctx, client, id); err != nil {
		return err
	}
	if unknown != nil {
		j = &job.Job{ID: id, ClientID: client}
	}
	s.finishDelete(j)
	return nil
}

// finishDelete removes the job's remains from the queue, such as failed tasks. It notifies watchers itself, because a deletion writes no
// event.
func (s *Service) finishDelete(j *job.Job) {
	for attempt := 1; attempt <= j.Attempt; attempt++ {
		s.Queue.Remove(job.Task{JobID: j.ID, Attempt: attempt})
	}
	s.Queue.Publish(job.Notification{ClientID: j.ClientID, JobID: j.ID})
}
