package apptest

import (
	"context"
	"errors"

	"github.com/forgerun/forgerun/job"
)

func (s *Store) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	return call(ctx, s, "Backlog", func() (job.Backlog, error) {
		if limit != 1_000_000 {
			return job.Backlog{}, errors.New("another limit")
		}
		return s.BacklogNow, nil
	})
}
