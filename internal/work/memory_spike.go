package work

import "context"

const (
	memoryUnit = 1 << 20
	pageSize   = 4096
)

// memorySpike is MEMORY_SPIKE: it takes memory in units of 1 MiB, more of it in
// each step, and touches each page so that the system allocates it. All runs
// share one budget; when that is used up, a run goes on with what it has.
type memorySpike struct {
	idle
	budget chan struct{}
	held   [][]byte
}

func (*memorySpike) phase() string { return "ALLOCATING" }

func (s *memorySpike) units(steps int) int { return (cap(s.budget) + steps - 1) / steps }

func (s *memorySpike) unit(context.Context, int) (more bool, err error) {
	select {
	case s.budget <- struct{}{}:
	default:
		return false, nil
	}
	unit := make([]byte, memoryUnit)
	for i := 0; i < len(unit); i += pageSize {
		unit[i] = 1
	}
	s.held = append(s.held, unit)
	return true, nil
}

func (s *memorySpike) release() {
	for range s.held {
		<-s.budget
	}
	s.held = nil
}
