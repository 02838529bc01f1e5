package jobs

import (
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	// cancelPart is the number of jobs canceled in one transaction, which takes about 35 ms. Other requests can run between the transactions.
	cancelPart = 75
	// While another process completes the batch, CancelBatch reads the batch at most outcomeTries times.
	outcomeTries = 20
	outcomePause = 25 * time.Millisecond
)

// CancelBatch cancels the unfinished jobs of a batch, and returns the batch with its outcome. After an error, the client can repeat the
// request.
func (s *Service) CancelBatch(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	open, err := s.Store.OpenJobs(ctx, client, id)
	if err != nil {
		return nil, err
	}
	for part := range slices.Chunk(open, cancelPart) {
		if _, err := s.cancelAll(ctx, client, part); err != nil {
			return nil, err
		}
	}
	return s.completed(ctx, client, id)
}

// completed returns a batch. If all jobs have ended but the outcome is missing, it completes the batch. If another process is completing
// the batch, it waits for that process.
func (s *Service) completed(ctx context.Context, client, id job.ID) (*job.Batch, error) {
	for try := 0; ; try++ {
		b, err := s.Store.Batch(ctx, client, id)
		if err != nil || b.Outcome != nil || b.Unfinished() || try == outcomeTries {
			return b, err
		}
		if try > 1 && !app.Sleep(ctx, outcomePause) { // wait for the process that completes the batch
			return b, nil
		}
		if _, err := s.Completer.Complete(ctx, []job.ID{id}); err != nil {
			s.Completer.Touch(id) // lets Completer.Run complete the batch later
			return b, nil
		}
	}
}
