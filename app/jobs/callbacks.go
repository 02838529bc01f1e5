package jobs

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// ProofStore tells which receivers said that they want a client's events.
type ProofStore interface {
	// ProvenURLs gives the URLs of the client's enabled webhooks that are proven.
	ProvenURLs(ctx context.Context, client job.ID) ([]string, error)
}

// origins are those that a client's callbacks may lead to; nil: to any.
type origins map[string]bool

// provenOf reads where the callbacks of a client may lead. It asks storage only if
// there are callbacks, and only where they need a proof.
func (s *Service) provenOf(ctx context.Context, client job.ID, called bool) (origins, error) {
	if s.deps.Proofs == nil || !called {
		return nil, nil
	}
	urls, err := s.deps.Proofs.ProvenURLs(ctx, client)
	if err != nil {
		return nil, err
	}
	proven := make(origins, len(urls))
	for _, u := range urls {
		proven[job.OriginOf(u)] = true
	}
	return proven, nil
}

// check gives the violation of a callback that leads elsewhere, and false
// otherwise. What has no origin, the targets refuse.
func (o origins) check(callback string) (job.Violation, bool) {
	origin := job.OriginOf(callback)
	if o == nil || origin == "" || o[origin] {
		return job.Violation{}, false
	}
	return job.Violation{Pointer: "/callback", Detail: "On this server a callback must have the scheme, host and port of one of " +
		"your enabled webhooks whose receiver said that it wants events (proven_at is not null). Register a webhook there first."}, true
}
