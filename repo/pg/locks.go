package pg

import (
	"context"
	"sync"
)

// Walk stores where a periodic search continues in its next run.
type Walk[P any] struct {
	sync.Mutex
	At P
}

// Semaphore limits the number of callers that hold it at the same time.
type Semaphore chan struct{}

// Acquire waits while the maximum number of callers hold the Semaphore. It returns an error if ctx ends first.
func (s Semaphore) Acquire(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, Translate(ctx.Err())
	}
}

// KeyedMutex lets one caller at a time hold a key. The zero value is ready to use.
type KeyedMutex[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*keyLock
}

type keyLock struct {
	held  Semaphore
	users int // callers that hold the key or wait for it
}

// Lock waits until no other caller holds the key. `waited` reports whether it had to wait.
func (m *KeyedMutex[K]) Lock(ctx context.Context, key K) (waited bool, unlock func(), err error) {
	m.mu.Lock()
	if m.locks == nil {
		m.locks = map[K]*keyLock{}
	}
	l, waited := m.locks[key]
	if !waited {
		l = &keyLock{held: make(Semaphore, 1)}
		m.locks[key] = l
	}
	l.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(m.locks, key)
		}
	}
	release, err := l.held.Acquire(ctx)
	if err != nil {
		leave()
		return waited, nil, err
	}
	return waited, func() { release(); leave() }, nil
}

// Held returns the number of keys that callers hold or wait for.
func (m *KeyedMutex[K]) Held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.locks)
}
