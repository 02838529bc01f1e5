package jobs

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// ReadStore reads what belongs to a client's jobs.
type ReadStore interface {
	// Report reads the report of a finished attempt; attempt 0 is the latest.
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)
	// Attempts reads a job's attempts, from the first to the current one.
	Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error)
	// Result reads the result of a job that succeeded.
	Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
	Jobs(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
	CursorKey(ctx context.Context) ([]byte, error)
}

// ProgressReader knows how far running attempts have come.
type ProgressReader interface {
	// Progress gives nil, soon, if it is not known.
	Progress(ctx context.Context, id job.ID, attempt int) *job.Progress
}

// Job reads a client's job, with its progress while it runs and with what it
// waits for while it waits.
func (s *Service) Job(ctx context.Context, client, id job.ID) (*job.Job, error) {
	j, err := s.deps.Jobs.Job(ctx, client, id)
	if err != nil {
		return nil, err
	}
	return s.annotated(ctx, j), nil
}

// annotated completes j with what storage does not know.
func (s *Service) annotated(ctx context.Context, j *job.Job) *job.Job {
	if j.State == job.Running {
		j.Progress = s.deps.Progress.Progress(ctx, j.ID, j.Attempt)
	}
	j.Waiting = s.stopped().Reason(j.WaitingFor(s.cfg.Clock(), s.deps.Capacity.liveWorkers()), j.WorkKind, j.ClientID)
	return j
}

// Await reads a job until done says so, or as it is when ctx ends: see Hub.Await.
func (s *Service) Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error) {
	read := func(ctx context.Context) (*job.Job, error) { return s.Job(ctx, client, id) }
	j, over, err := s.deps.Hub.Await(ctx, client, id, read, done)
	if over {
		j = s.annotated(context.WithoutCancel(ctx), j)
	}
	return j, err
}

// List reads a part of the list of a client's jobs.
func (s *Service) List(ctx context.Context, client job.ID, q job.Query) (job.Page, error) {
	return s.ReadStore.Jobs(ctx, client, q)
}

// cursorKeyTimeout bounds the one read of the key, which outlives the request
// that began it because others wait for it too.
const cursorKeyTimeout = 10 * time.Second

// CursorKey gives the secret that signs cursors, the same in all processes. It
// is read once; an error is not kept.
func (s *Service) CursorKey(ctx context.Context) ([]byte, error) {
	if key := s.cursorKey.Load(); key != nil {
		return *key, nil
	}
	answer := s.keyReads.DoChan("", func() (any, error) {
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), cursorKeyTimeout)
		defer cancel()
		key, err := s.ReadStore.CursorKey(reading)
		if err == nil {
			s.cursorKey.Store(&key)
		}
		return key, err
	})
	select {
	case a := <-answer:
		if a.Err != nil {
			return nil, a.Err
		}
		return a.Val.([]byte), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
