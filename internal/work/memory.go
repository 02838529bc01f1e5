package work

const (
	memoryUnit = 1 << 20
	pageSize   = 4096
)

// memory holds the memory of one run, in units of 1 MiB. All runs share one budget. When the budget is used up, a run takes no more memory,
// but does not fail.
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
