package maintenance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeStore adds the outbox of outcomes, and a count of the backlog, to the
// shared store.
type fakeStore struct {
	*apptest.Store
	outbox    []*outboxRow
	backlog   job.Backlog
	cleanings int // how often Clean says that there is more
}

// outboxRow is an outcome that is or was to be published.
type outboxRow struct {
	job.OutcomeMessage
	Published time.Time // zero while it is not
}

func (s *fakeStore) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return apptest.Call(ctx, s.Store, "UnpublishedOutcomes", func() (messages []job.OutcomeMessage, err error) {
		for _, r := range s.outbox {
			if len(messages) < limit && r.Published.IsZero() {
				messages = append(messages, r.OutcomeMessage)
			}
		}
		return messages, nil
	})
}

func (s *fakeStore) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	_, err := apptest.Call(ctx, s.Store, "MarkPublished", func() (struct{}, error) {
		marked := map[job.ID]int{}
		for _, m := range messages {
			marked[m.JobID] = m.Attempt
		}
		for _, r := range s.outbox {
			if r.Published.IsZero() && marked[r.JobID] == r.Attempt {
				r.Published = time.Now()
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) RepublishOutcomes(ctx context.Context) (int, error) {
	return apptest.Call(ctx, s.Store, "RepublishOutcomes", func() (n int, err error) {
		for _, r := range s.outbox {
			if !r.Published.IsZero() {
				n++
			}
			r.Published = time.Time{}
		}
		return n, nil
	})
}

func (s *fakeStore) RemovePublished(ctx context.Context, minAge time.Duration) error {
	_, err := apptest.Call(ctx, s.Store, "RemovePublished", func() (struct{}, error) {
		s.outbox = slices.DeleteFunc(s.outbox, func(r *outboxRow) bool {
			return !r.Published.IsZero() && time.Since(r.Published) >= minAge
		})
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return apptest.Call(ctx, s.Store, "Backlog", func() (job.Backlog, error) {
		if limit != 1_000_000 {
			return job.Backlog{}, errors.New("another limit")
		}
		return s.backlog, nil
	})
}

func (s *fakeStore) Clean(ctx context.Context, _ int) (bool, error) {
	return apptest.Call(ctx, s.Store, "Clean", func() (bool, error) {
		s.cleanings--
		return s.cleanings >= 0, nil
	})
}

func (s *fakeStore) ReclaimDeliveries(ctx context.Context, _ int) (int, error) {
	return apptest.Call(ctx, s.Store, "ReclaimDeliveries", func() (int, error) { return 0, nil })
}

func (s *fakeStore) FailOrphans(ctx context.Context, _, _ int) (int, error) {
	return apptest.Call(ctx, s.Store, "FailOrphans", func() (int, error) { return 0, nil })
}

func (s *fakeStore) DueClients(ctx context.Context, _ job.EndpointKey, _ time.Duration, _ int) ([]job.ID, job.EndpointKey, error) {
	_, err := apptest.Call(ctx, s.Store, "DueClients", func() (int, error) { return 0, nil })
	return nil, job.EndpointKey{}, err
}

func (s *fakeStore) WaitingDeliveries(ctx context.Context, _ job.EndpointKey, _, _, _ int, _ time.Duration) (
	[]job.Delivery, job.EndpointKey, error,
) {
	_, err := apptest.Call(ctx, s.Store, "WaitingDeliveries", func() (int, error) { return 0, nil })
	return nil, job.EndpointKey{}, err
}
