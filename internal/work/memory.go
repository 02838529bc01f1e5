package work

const (
	memoryUnit = 1 << 20
	pageSize   = 4096
)

// memory is the memory that a run has allocated, in units of 1 MiB. All runs share one budget. A run that finds the budget used up takes no
// more memory, but does not fail.
type memory struct {
	budget chan struct{}
	held   [][]byte
}

// take allocates a unit, if one is available, and touches each page so that the system allocates it.
func (m *memory) take() bool {
	select {
	case m.budget <- struct{}{}:
	default:
		return false
	}
	unit := make([]byte, memoryUnit)
	for i := 0; i < len(unit); i += pageSize {
		unit[i] = 1
	}
	m.held = append(m.held, unit)
	return true
}

func (m *memory) release() {
	for range m.held {
		<-m.budget
	}
	m.held = nil
}
