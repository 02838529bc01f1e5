// Package testbed has the use cases of a test bed: faults, sessions, verdicts, fixtures and the clock.
package testbed

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// A process computes at most verdictsAtOnce verdicts at once, because each verdict uses up to 200 MB of memory.
const verdictsAtOnce = 2

// Service has the use cases of a test bed. It reads rules and sessions for each request, so changes apply in all processes at once.
type Service struct {
	*repo.Store
	open  sync.Map // clients that had an open session when their latest request without a session label arrived
	turns *fair.Semaphore[job.ID]

	most          int  // maximum open sessions of a client
	outcomeStream bool // whether clients can read outcomes in Redis; the test bed cannot observe such reads
}

// Bed has all use cases of the clients of a test bed.
type Bed struct {
	*Service
	*Clock
	Jobs  *jobs.Service
	Tasks app.Tasks
	Limit time.Duration // execution limit
	Wait  time.Duration // how long a request for fixtures waits for workers; 0: 8 s
}

// New returns the use cases.
func New(store *repo.Store, outcomeStream bool) *Service {
	return &Service{Store: store, turns: fair.New[job.ID](verdictsAtOnce), most: verdict.MaxSessions, outcomeStream: outcomeStream}
}

// ReplaceFaults replaces the rules of a client's session with the given rules, followed by the profile's rules. It returns the stored
// rules.
func (s *Service) ReplaceFaults(ctx context.Context, scope testbed.Scope, seed int64, rules []fault.Rule, p fault.Profile) (
	[]fault.Counted, error,
) {
	if err := s.changeable(ctx, scope); err != nil {
		return nil, err
	}
	return s.replaceFaults(ctx, scope, seed, rules, p)
}

// changeable returns an error while a session with a profile is open, because the rules of such a session must not change.
func (s *Service) changeable(ctx context.Context, scope testbed.Scope) error {
	n, err := s.current(ctx, scope)
	if err == nil && n.EndedAt == nil && n.Profile != "" {
		return job.Errorf(job.CodeConflict, "This client has a session with the profile %s, which sets the fault rules. End the session first.",
			n.Profile)
	}
	return err
}

// current returns the session of a scope. For a scope without a session, it returns the client's latest session without a label. If there
// is none, it returns a zero Session.
func (s *Service) current(ctx context.Context, scope testbed.Scope) (verdict.Session, error) {
	if !scope.Session.IsZero() {
		n, _, err := s.Store.Session(ctx, scope.Client, scope.Session)
		return n, err
	}
	sessions, err := s.Store.Sessions(ctx, scope.Client, new(""))
	return append(sessions, verdict.Session{})[0], err
}

func (s *Service) replaceFaults(ctx context.Context, scope testbed.Scope, seed int64, rules []fault.Rule, p fault.Profile) (
	[]fault.Counted, error,
) {
	rules = append(rules, p.Rules(testbed.API, seed)...)
	if len(rules) > fault.MaxRules {
		return nil, job.Errorf(job.CodeValidationFailed, "A client can have at most %d rules, including those of the profile.", fault.MaxRules)
	}
	counted := make([]fault.Counted, len(rules))
	for i, r := range rules {
		counted[i] = fault.Counted{Rule: r, ID: uuid.Must(uuid.NewV7()).String(), Position: i + 1, Seed: seed}
	}
	if err := s.Store.ReplaceFaults(ctx, scope, seed, counted); err != nil {
		return nil, err
	}
	return s.Store.Faults(ctx, scope)
}

// RemoveFaults removes all rules of a client's session.
func (s *Service) RemoveFaults(ctx context.Context, scope testbed.Scope) error {
	if err := s.changeable(ctx, scope); err != nil {
		return err
	}
	_, err := s.Store.RemoveFaults(ctx, scope, job.ID{})
	return err
}

// RemoveFault removes one rule of a client's session.
func (s *Service) RemoveFault(ctx context.Context, scope testbed.Scope, id job.ID) error {
	if err := s.changeable(ctx, scope); err != nil {
		return err
	}
	n, err := s.Store.RemoveFaults(ctx, scope, id)
	if err == nil && n == 0 {
		err = job.Errorf(job.CodeRequestNotFound, "No rule with this id was found.")
	}
	return err
}

// Fault counts a request for each matching rule of the session. It returns the effect of the first of these rules that applies, or nil.
// `subject` is a result of fault.Subject.
func (s *Service) Fault(ctx context.Context, scope testbed.Scope, operation, subject string) (*fault.Effect, error) {
	rules, err := s.Store.CountFaults(ctx, scope, operation, subject)
	if err != nil {
		return nil, err
	}
	return s.apply(ctx, scope, rules)
}

// apply returns the effect of the first rule that applies, and marks this rule as applied.
func (s *Service) apply(ctx context.Context, scope testbed.Scope, rules []fault.Counted) (*fault.Effect, error) {
	for _, r := range rules {
		if !r.Applies() {
			continue
		}
		if applied, err := s.Store.FaultApplied(ctx, scope, r); applied || err != nil {
			return &r.Effect, err
		}
	}
	return nil, nil
}
