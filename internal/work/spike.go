package work

import (
	"context"
	"time"
)

const (
	memoryUnit = 1 << 20
	pageSize   = 4096
)

// spike is MEMORY_SPIKE: it takes memory in units of 1 MiB, ever more of it
// over its steps, and touches each page so that it is really there. All runs
// draw on one budget; when that is spent, a run goes on with what it has.
type spike struct {
	idle
	budget chan struct{}
	held   [][]byte
}

func (*spike) phase() string { return "ALLOCATING" }

func (s *spike) step(ctx context.Context, steps int, until time.Time) error {
	share := (cap(s.budget) + steps - 1) / steps
	for range share {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case s.budget <- struct{}{}:
			s.take()
		default:
			return nil
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
	return nil
}

func (s *spike) take() {
	unit := make([]byte, memoryUnit)
	for i := 0; i < len(unit); i += pageSize {
		unit[i] = 1
	}
	s.held = append(s.held, unit)
}

func (s *spike) release() {
	for range s.held {
		<-s.budget
	}
	s.held = nil
}
