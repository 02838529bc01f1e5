package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Workers is the number of worker processes that are wanted now.
func (s *Stack) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Scale starts or stops worker processes until there are n, and returns once
// the new ones are ready and the others, which get SIGTERM, have ended. The
// number holds even if the wait ends early with the context. It may be called
// while faults are done.
func (s *Stack) Scale(ctx context.Context, n int) error {
	if n < 0 || n > maxWorkers {
		return fmt.Errorf("%d workers: allowed is a number from 0 to %d", n, maxWorkers)
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if s.scaling.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.scaling.Release(1)
	s.mu.Lock()
	kept := min(n, len(s.workers))
	dropped := s.workers[kept:]
	s.workers = slices.Clip(s.workers[:kept])
	for i := kept; i < n; i++ {
		s.workers = append(s.workers, s.startMember("worker", i+1))
	}
	wanted := s.workers
	s.mu.Unlock()
	return errors.Join(stopMembers(ctx, dropped), awaitReady(ctx, wanted))
}

// members are all processes that are wanted now.
func (s *Stack) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.apis, s.webhooks, s.workers)
}

// startMembers starts n processes of a role and makes them all of that role.
func (s *Stack) startMembers(all *[]*member, role string, n int) []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	*all = nil
	for i := range n {
		*all = append(*all, s.startMember(role, i+1))
	}
	return *all
}

func (s *Stack) startMember(role string, number int) *member {
	m := &member{name: fmt.Sprintf("%s-%d", role, number), role: role, stack: s}
	m.done, m.changed = make(chan struct{}), make(chan struct{})
	m.ctx, m.stop = context.WithCancel(s.ctx)
	s.running.Go(m.supervise)
	return m
}
