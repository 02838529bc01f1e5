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

// StartSession starts to record a client's requests for a verdict. A session with a label records only requests with that label. The fault
// rules of the session's profile replace the client's rules. A session with a label starts without rules, unless it has a profile.
func (s *Service) StartSession(ctx context.Context, client job.ID, n verdict.Session) (verdict.Session, error) {
	n.ID = uuid.Must(uuid.NewV7()).String()
	if len(n.Rules) == 0 {
		n.Rules = verdict.IDs()
	}
	began, ok, err := s.Store.StartSession(ctx, client, n, s.most)
	switch {
	case err != nil:
		return began, err
	case !ok:
		label := "the same label"
		if n.Label == "" {
			label = "no label either"
		}
		return began, job.Errorf(job.CodeConflict, "Another open session of this client has %s, or %d sessions are open. "+
			"List the sessions, and end one first.", label, s.most)
	case n.Profile != "":
		scope := testbed.Scope{Client: client}
		if n.Label != "" {
			scope.Session, _ = job.ParseID(n.ID)
		}
		_, err = s.replaceFaults(ctx, scope, n.Seed, nil, n.Profile)
	}
	return began, err
}

// Enter returns the open session with the label of a request. If no session has this label, but a session without a label is open, Enter
// starts a session with the label. If no session is open, the label has no effect. `request` is the id of the request, or "" if the
// request creates no jobs.
func (s *Service) Enter(ctx context.Context, client job.ID, label, request string) (testbed.Scope, error) {
	scope := testbed.Scope{Client: client}
	session, unlabeled, err := s.Store.EnterSession(ctx, client, label, request)
	if err != nil || !session.IsZero() || !unlabeled {
		scope.Session = session
		return scope, err
	}
	if err := s.Store.OpenLabeled(ctx, client, app.NewID(), label, s.most); err != nil {
		return scope, err
	}
	scope.Session, unlabeled, err = s.Store.EnterSession(ctx, client, label, request)
	if err == nil && scope.Session.IsZero() && unlabeled {
		err = job.Errorf(job.CodeValidationFailed, "A session with this label cannot start: this client has %d open sessions.",
			s.most)
	}
	return scope, err
}

// Session returns a session of a client.
func (s *Service) Session(ctx context.Context, client, id job.ID) (verdict.Session, error) {
	n, ok, err := s.Store.Session(ctx, client, id)
	return n, found(ok, err)
}

// A stream is recorded shortly after the client closes it. EndSession waits up to streamPatience for open streams.
const (
	streamPatience = time.Second
	streamPause    = 50 * time.Millisecond
)

// EndSession ends a session and the faults of its profile. Ending a session without a label also ends all labeled sessions of the client.
// For an ended session, EndSession does nothing.
func (s *Service) EndSession(ctx context.Context, client, id job.ID) (verdict.Session, error) {
	before, err := s.Session(ctx, client, id)
	if err != nil || before.EndedAt != nil {
		return before, err
	}
	for began := time.Now(); time.Since(began) < streamPatience; {
		if open, err := s.Store.OpenStreams(ctx, client, before); err != nil || open == 0 || !app.Sleep(ctx, streamPause) {
			break
		}
	}
	n, ok, err := s.Store.EndSession(ctx, client, id)
	return n, found(ok, err)
}

// Verdict returns the verdict of a session so far.
func (s *Service) Verdict(ctx context.Context, client, id job.ID) (verdict.Verdict, error) {
	n, err := s.Session(ctx, client, id)
	if err != nil {
		return verdict.Verdict{}, err
	}
	if !s.turns.Acquire(client, ctx.Done()) {
		return verdict.Verdict{}, job.Errorf(job.CodeTimeout, "The server is judging too many other sessions. Try again.")
	}
	defer s.turns.Release(client)
	r, err := s.Store.Recorded(ctx, client, n)
	if err != nil {
		return verdict.Verdict{}, err
	}
	r.API, r.Now, r.Elsewhere = testbed.API, time.Now(), s.outcomeStream
	v := verdict.Of(&r)
	v.EndedAt = n.EndedAt // by the service's clock, which a test bed can move
	return v, nil
}

// Record stores a request in its session, if the session is open. For a request without a label, Record returns a storage error only if
// the client had an open session before. Most clients have no open session, and a storage error must not fail their requests.
func (s *Service) Record(ctx context.Context, scope testbed.Scope, x *verdict.Exchange) error {
	recorded, err := s.Store.Record(ctx, scope, x)
	client := scope.Client
	_, open := s.open.Load(client)
	switch {
	case !scope.Session.IsZero():
		return err
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
