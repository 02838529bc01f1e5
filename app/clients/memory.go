package clients

import (
	"context"
	"sync"

	"github.com/forgerun/forgerun/job"
)

const maxRemembered = 10_000

// memory caches keys, but only while the connection that reports key changes is up.
type memory struct {
	mu         sync.Mutex
	watching   bool
	generation uint64
	known      map[string]job.APIKey
	watches    map[*func()]string // functions to call after a change of a key; the value is the key's id
}

func newMemory() memory {
	return memory{known: map[string]job.APIKey{}, watches: map[*func()]string{}}
}

// WatchKeys removes changed keys from this process's cache until ctx ends.
func (k *Service) WatchKeys(ctx context.Context) {
	k.store.WatchKeys(ctx, k.memory.forget, k.memory.connected)
}

// WatchKey calls `changed` after each change of the key, until `stop` is called. It also calls `changed` if it may have missed a change.
// `changed` must not block.
func (k *Service) WatchKey(id string, changed func()) (stop func()) {
	m := &k.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watches[&changed] = id
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, &changed)
	}
}

func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	delete(m.known, id)
	for changed, of := range m.watches {
		if of == id {
			(*changed)()
		}
	}
}

// connected clears the cache. Storage calls it when the connection for key changes is lost or restored. If `up` is true, connected also
// calls all watches, because keys may have changed meanwhile.
func (m *memory) connected(up bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation++
	m.watching = up
	clear(m.known)
	if !up {
		return
	}
	for changed := range m.watches {
		(*changed)()
	}
}

// recall returns a cached key. If `known` is false, look the key up, and pass `generation` to memory.remember.
func (m *memory) recall(id string) (key job.APIKey, known bool, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, known = m.known[id]
	return key, known, m.generation
}

// remember caches a key that was looked up, unless keys have changed since the given generation.
func (m *memory) remember(key job.APIKey, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.watching || m.generation != generation {
		return
	}
	if len(m.known) >= maxRemembered {
		clear(m.known)
	}
	m.known[key.ID] = key
}

func (k *Service) find(ctx context.Context, id string) (*job.APIKey, error) {
	found, known, generation := k.memory.recall(id)
	if known {
		return &found, nil
	}
	key, err := k.store.Key(ctx, id)
	if err == nil && key != nil {
		k.memory.remember(*key, generation)
	}
	return key, err
}
