package testbed

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
)

// StartSession begins to record a client's traffic, which its session is judged by. The rules of a profile replace the client's.
func (s *Service) StartSession(ctx context.Context, client job.ID, n verdict.Session) (verdict.Session, error) {
	n.ID = uuid.Must(uuid.NewV7()).String()
	if len(n.Rules) == 0 {
		n.Rules = verdict.IDs()
	}
	began, ok, err := s.store.StartSession(ctx, client, n, verdict.MaxSessions)
	switch {
	case err != nil:
		return began, err
	case !ok:
		return began, job.Errorf(job.CodeConflict, "This client has a session that has not ended. List the sessions, and end it first.")
	case n.Profile != "":
		_, err = s.replaceFaults(ctx, client, n.Seed, nil, n.Profile)
	}
	return began, err
}

// Sessions lists the sessions of a client, the latest first.
func (s *Service) Sessions(ctx context.Context, client job.ID) ([]verdict.Session, error) {
	return s.store.Sessions(ctx, client)
}

// Session finds a session of a client.
func (s *Service) Session(ctx context.Context, client, id job.ID) (verdict.Session, error) {
	n, ok, err := s.store.Session(ctx, client, id)
	return n, found(ok, err)
}

// The end of a stream is recorded a moment after the client has closed it, and streams that stay open are not waited for any longer.
const (
	streamPatience = time.Second
	streamPause    = 50 * time.Millisecond
)

// EndSession ends a session, and the disturbances of its profile. One that has ended stays as it is.
func (s *Service) EndSession(ctx context.Context, client, id job.ID) (verdict.Session, error) {
	before, err := s.Session(ctx, client, id)
	if err != nil || before.EndedAt != nil {
		return before, err
	}
	if before.Profile != "" {
		if _, err := s.store.RemoveFaults(ctx, client, job.ID{}); err != nil {
			return before, err
		}
	}
	for began := time.Now(); time.Since(began) < streamPatience; {
		if open, err := s.store.OpenStreams(ctx, client, id); err != nil || open == 0 || !app.Sleep(ctx, streamPause) {
			break
		}
	}
	n, ok, err := s.store.EndSession(ctx, client, id)
	return n, found(ok, err)
}

// Verdict judges a session so far.
func (s *Service) Verdict(ctx context.Context, client, id job.ID) (verdict.Verdict, error) {
	n, err := s.Session(ctx, client, id)
	if err != nil {
		return verdict.Verdict{}, err
	}
	if !s.turns.Acquire(client, ctx.Done()) {
		return verdict.Verdict{}, job.Errorf(job.CodeTimeout, "Other sessions were judged all the time. Try again.")
	}
	defer s.turns.Release(client)
	r, err := s.store.Recorded(ctx, client, n)
	if err != nil {
		return verdict.Verdict{}, err
	}
	r.API, r.Now = testbed.API, time.Now()
	v := verdict.Of(&r)
	v.EndedAt = n.EndedAt // by the service's clock
	return v, nil
}

// Record records a request of a client, if it has an open session. That this fails is an error for clients alone that had one when
// this process asked last: most have none, and nothing of theirs is missing.
func (s *Service) Record(ctx context.Context, client job.ID, x *verdict.Exchange) error {
	recorded, err := s.store.Record(ctx, client, x)
	_, open := s.open.Load(client)
	switch {
	case err != nil && open:
		return err
	case recorded:
		s.open.Store(client, true)
	case err == nil && open:
		s.open.Delete(client)
	}
	return nil
}

func found(ok bool, err error) error {
	if err == nil && !ok {
		return job.Errorf(job.CodeRequestNotFound, "No session with this id was found.")
	}
	return err
}
