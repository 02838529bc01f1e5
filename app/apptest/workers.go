package apptest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

func (s *Store) Register(ctx context.Context, worker job.ID, _ string, _ int, lease time.Duration) error {
	return Do(ctx, s, "Register", func() error {
		s.Workers[worker] = &workerRow{alive: true, Expires: time.Now().Add(lease)}
		return nil
	})
}

func (s *Store) Renew(ctx context.Context, worker job.ID, lease time.Duration) ([]job.ClaimID, error) {
	return Call(ctx, s, "Renew", func() ([]job.ClaimID, error) {
		if !s.Alive(worker) {
			return nil, job.ErrWorkerDead
		}
		s.Workers[worker].Expires = time.Now().Add(lease)
		var claims []job.ClaimID
		for _, h := range s.held(func(id job.ID) bool { return id == worker }) {
			claims = append(claims, h.ClaimID)
		}
		return claims, nil
	})
}

func (s *Store) Held(ctx context.Context, worker job.ID, claims []job.ClaimID) ([]job.Held, error) {
	return Call(ctx, s, "Held", func() ([]job.Held, error) {
		return slices.DeleteFunc(s.held(func(id job.ID) bool { return id == worker }), func(h job.Held) bool {
			return !slices.Contains(claims, h.ClaimID)
		}), nil
	})
}

func (s *Store) held(by func(job.ID) bool) []job.Held {
	var held []job.Held
	for _, r := range s.Rows {
		if !r.Worker.IsZero() && by(r.Worker) {
			held = append(held, job.Held{
				ClaimID: job.ClaimID{JobID: r.ID, Attempt: r.Attempt, Fence: r.Fence}, ClientID: r.ClientID, RequestID: r.RequestID,
				TraceParent: r.TraceParent, State: r.State, WorkKind: r.WorkKind, MaxAttempts: r.MaxAttempts, AutoRetry: r.AutoRetry,
				LeaseExpiries: r.Expiries,
			})
		}
	}
	slices.SortFunc(held, func(a, b job.Held) int { return bytes.Compare(a.JobID[:], b.JobID[:]) })
	return held
}

func (s *Store) Retire(ctx context.Context, worker job.ID) error {
	return Do(ctx, s, "Retire", func() error {
		if w := s.Workers[worker]; w != nil {
			w.alive, w.Retired = false, true
		}
		return nil
	})
}

func (s *Store) Orphans(ctx context.Context, limit int) ([]job.Held, error) {
	return Call(ctx, s, "Orphans", func() ([]job.Held, error) {
		held := s.held(func(id job.ID) bool { return !s.Alive(id) })
		return held[:min(limit, len(held))], nil
	})
}
