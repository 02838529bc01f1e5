package repo

import (
	"context"
	"sync"

	"github.com/forgerun/forgerun/job"
)

// maxBatchInserts is how many batches are inserted at once. One takes long, and
// holds its connection all the time.
const maxBatchInserts = 3

// batchKey names an idempotency key of a client.
type batchKey struct {
	client job.ID
	key    string
}

// slots is room for a number of callers at once.
type slots chan struct{}

// enter waits for room. An error means that ctx ended before.
func (s slots) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, translate(ctx.Err())
	}
}

// keyTurns has one slot for each key that somebody is at. The zero value is ready.
type keyTurns[K comparable] struct {
	mu    sync.Mutex
	there map[K]*turn
}

type turn struct {
	slot   slots
	people int // who is in the slot, or waits for it
}

// enter waits until nobody is at the key, and tells whether somebody was.
func (t *keyTurns[K]) enter(ctx context.Context, key K) (waited bool, leave func(), err error) {
	at, waited := t.come(key)
	free, err := at.slot.enter(ctx)
	if err != nil {
		t.goAway(key, at)
		return waited, nil, err
	}
	return waited, func() { free(); t.goAway(key, at) }, nil
}

func (t *keyTurns[K]) come(key K) (at *turn, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.there == nil {
		t.there = map[K]*turn{}
	}
	at, taken = t.there[key]
	if !taken {
		at = &turn{slot: make(slots, 1)}
		t.there[key] = at
	}
	at.people++
	return at, taken
}

func (t *keyTurns[K]) goAway(key K, at *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.people--; at.people == 0 {
		delete(t.there, key)
	}
}
