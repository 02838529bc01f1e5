package jobs

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Job returns a client's job, with the progress or the reason for waiting.
func (s *Service) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	j, err := s.Store.Job(ctx, client, id)
	if err != nil {
		return nil, err
	}
	return s.annotate(ctx, j), nil
}

func (s *Service) annotate(ctx context.Context, j *job.Job) *job.Job {
	if j.State == job.Running {
		j.Progress = s.Progress(ctx, j.ID, j.Attempt)
	}
	waiting := j.WaitingFor(s.cfg.Clock(), s.Admission.Capacity.liveWorkers())
	j.Waiting = s.Admission.Pauses().Reason(waiting, j.WorkKind, j.ClientID)
	return j
}

// Await reads a job until `done` returns true or ctx ends: see Hub.Await.
func (s *Service) Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	read := func(ctx context.Context) (*job.Job, error) { return s.Job(ctx, client, id) }
	j, over, err := s.Hub.Await(ctx, client, id, read, done)
	if over {
		j = s.annotate(context.WithoutCancel(ctx), j)
	}
	return j, err
}

// CursorKey returns the secret that signs cursors. All processes use the same secret. Each process reads it once.
func (s *Service) CursorKey(ctx context.Context) ([]byte, error) {
	if key := s.cursorKey.Load(); key != nil {
		return *key, nil
	}
	key, err := s.Store.CursorKey(ctx)
	if err == nil {
		s.cursorKey.Store(&key)
	}
	return key, err
}
