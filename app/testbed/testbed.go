// Package testbed keeps what clients have asked the service to do to their own traffic, and decides for each request.
package testbed

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Store keeps the rules. Everything is read from it with each request, so that rules hold on all processes at once.
type Store interface {
	ReplaceFaults(ctx context.Context, of testbed.Scope, seed int64, rules []fault.Counted) error
	RemoveFaults(ctx context.Context, of testbed.Scope, id job.ID) (int, error) // the zero id: all
	Faults(ctx context.Context, of testbed.Scope) ([]fault.Counted, error)
	CountFaults(ctx context.Context, of testbed.Scope, operation, subject string) ([]fault.Counted, error)
	CountDelivery(ctx context.Context, p *job.ClaimedDelivery) (testbed.Scope, []fault.Counted, error)
	// FaultApplied counts that a rule applies. It reports false if the rule was removed since, or is about no such request any more.
	FaultApplied(ctx context.Context, of testbed.Scope, c fault.Counted) (bool, error)

	// StartSession begins a session unless the client has an open one with the label, or so many; it keeps no more.
	StartSession(ctx context.Context, client job.ID, n verdict.Session, keep int) (verdict.Session, bool, error)
	// EnterSession finds the open session with a label, and notes that a request is of it; also whether one without a label is open.
	EnterSession(ctx context.Context, client job.ID, label, request string) (session job.ID, unlabelled bool, err error)
	OpenLabelled(ctx context.Context, client, id job.ID, label string, keep int) error
	EndSession(ctx context.Context, client, id job.ID) (verdict.Session, bool, error)
	Session(ctx context.Context, client, id job.ID) (verdict.Session, bool, error)
	Sessions(ctx context.Context, client job.ID, label *string) ([]verdict.Session, error) // nil: with any or none
	Record(ctx context.Context, of testbed.Scope, x *verdict.Exchange) (recorded bool, err error)
	OpenStreams(ctx context.Context, client job.ID, n verdict.Session) (int, error)
	// Recorded gives what a session has recorded, in real time.
	Recorded(ctx context.Context, client job.ID, n verdict.Session) (verdict.Record, error)
}

// verdictsAtOnce is how many sessions a process judges at a time, of each client one: each takes up to 200 MB of memory.
const verdictsAtOnce = 2

// Service is the use cases of a test bed.
type Service struct {
	store Store
	open  sync.Map // clients whose last request without a label through this process was recorded
	turns *fair.Semaphore[job.ID]

	outcomeStream bool // clients may learn of ends from the outcome stream, where nothing is recorded
}

// New makes the use cases.
func New(store Store, outcomeStream bool) *Service {
	return &Service{store: store, turns: fair.New[job.ID](verdictsAtOnce), outcomeStream: outcomeStream}
}

// ReplaceFaults gives a client's session rules instead of those that it has, and after them those of a profile, and lists them.
func (s *Service) ReplaceFaults(ctx context.Context, of testbed.Scope, seed int64, rules []fault.Rule, p fault.Profile) (
	[]fault.Counted, error,
) {
	if err := s.changeable(ctx, of); err != nil {
		return nil, err
	}
	return s.replaceFaults(ctx, of, seed, rules, p)
}

// changeable refuses to change the rules by which the profile of an open session disturbs the client: its verdict would be about less.
func (s *Service) changeable(ctx context.Context, of testbed.Scope) error {
	n, err := s.current(ctx, of)
	if err == nil && n.EndedAt == nil && n.Profile != "" {
		return job.Errorf(job.CodeConflict, "The rules are those of the profile %s, under which this client has a session. End that first.",
			n.Profile)
	}
	return err
}

// current is the session that something is about, the latest one of those without a label; the zero value if there is none.
func (s *Service) current(ctx context.Context, of testbed.Scope) (verdict.Session, error) {
	if !of.Session.IsZero() {
		n, _, err := s.store.Session(ctx, of.Client, of.Session)
		return n, err
	}
	sessions, err := s.store.Sessions(ctx, of.Client, new(""))
	return append(sessions, verdict.Session{})[0], err
}

func (s *Service) replaceFaults(ctx context.Context, of testbed.Scope, seed int64, rules []fault.Rule, p fault.Profile) (
	[]fault.Counted, error,
) {
	rules = append(rules, p.Rules(testbed.API, seed)...)
	if len(rules) > fault.MaxRules {
		return nil, job.Errorf(job.CodeValidationFailed, "A client may have %d rules at most, those of the profile included.", fault.MaxRules)
	}
	counted := make([]fault.Counted, len(rules))
	for i, r := range rules {
		counted[i] = fault.Counted{Rule: r, ID: uuid.Must(uuid.NewV7()).String(), Position: i + 1, Seed: seed}
	}
	if err := s.store.ReplaceFaults(ctx, of, seed, counted); err != nil {
		return nil, err
	}
	return s.store.Faults(ctx, of)
}

// Faults lists the rules of a client's session.
func (s *Service) Faults(ctx context.Context, of testbed.Scope) ([]fault.Counted, error) {
	return s.store.Faults(ctx, of)
}

// RemoveFaults removes all rules of a client's session.
func (s *Service) RemoveFaults(ctx context.Context, of testbed.Scope) error {
	if err := s.changeable(ctx, of); err != nil {
		return err
	}
	_, err := s.store.RemoveFaults(ctx, of, job.ID{})
	return err
}

// RemoveFault removes one rule of a client's session.
func (s *Service) RemoveFault(ctx context.Context, of testbed.Scope, id job.ID) error {
	if err := s.changeable(ctx, of); err != nil {
		return err
	}
	n, err := s.store.RemoveFaults(ctx, of, id)
	if err == nil && n == 0 {
		err = job.Errorf(job.CodeRequestNotFound, "No rule with this id was found.")
	}
	return err
}

// Fault counts a request for the rules of its session and returns the effect of the first one that applies, nil for none.
// The subject is that of fault.Subject.
func (s *Service) Fault(ctx context.Context, of testbed.Scope, operation, subject string) (*fault.Effect, error) {
	rules, err := s.store.CountFaults(ctx, of, operation, subject)
	if err != nil {
		return nil, err
	}
	return s.apply(ctx, of, rules)
}

// apply gives the effect of the first rule that applies, and counts that.
func (s *Service) apply(ctx context.Context, of testbed.Scope, rules []fault.Counted) (*fault.Effect, error) {
	for _, r := range rules {
		if !r.Applies() {
			continue
		}
		if applied, err := s.store.FaultApplied(ctx, of, r); applied || err != nil {
			return &r.Effect, err
		}
	}
	return nil, nil
}
