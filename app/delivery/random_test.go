package delivery

import (
	"math/rand/v2"
	"sync"
)

// sharedRand is a source of random numbers for several goroutines.
type sharedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *sharedRand) n(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}
