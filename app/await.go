package app

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Await reads a job again with each of its events until done says so. It costs
// storage nothing while nothing happens. When ctx ends first, it gives the job
// as it was read last.
func (s *Service) Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	// Watched before it is read: no change falls between the two.
	news, stop := s.hub.watch(client, id, false)
	defer stop()
	var last *job.Job
	for {
		j, err := s.watchedJob(ctx, client, id)
		switch {
		case err == nil && done(j):
			return j, nil
		case err == nil:
			last = j
			s.hub.saw(client, id, job.Position{Seq: j.EventSeq})
		case last == nil || ctx.Err() == nil:
			return nil, err
		}
		select {
		case <-news:
		case <-ctx.Done():
			// Its progress may have gone on without an event.
			return s.annotated(context.WithoutCancel(ctx), last), nil
		}
	}
}

func (s *Service) watchedJob(ctx context.Context, client, id job.ID) (*job.Job, error) {
	done, err := s.hub.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.Job(ctx, client, id)
}
