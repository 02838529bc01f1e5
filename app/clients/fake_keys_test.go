package clients

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// fakeKeys stores clients and keys, and tells of every change once somebody
// watches.
type fakeKeys struct {
	mu      sync.Mutex
	clients map[job.ID]job.Client
	keys    []job.APIKey // newest first
	lookups int
	written int // calls of UseKey
	useErr  error
	err     error
	onKey   func() // after a look-up, before its answer

	changed   func(string)
	connected func(bool)
}

func newFakeKeys() *fakeKeys { return &fakeKeys{clients: map[job.ID]job.Client{}} }

func (f *fakeKeys) InsertClient(_ context.Context, id job.ID) (job.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return job.Client{}, f.err
	}
	f.clients[id] = job.Client{ID: id, CreatedAt: time.Now()}
	return f.clients[id], nil
}

func (f *fakeKeys) Key(_ context.Context, id string) (*job.APIKey, error) {
	f.mu.Lock()
	f.lookups++
	err, found, then := f.err, (*job.APIKey)(nil), f.onKey
	for _, k := range f.keys {
		if k.ID == id {
			found = &k
		}
	}
	f.mu.Unlock()
	if then != nil {
		then()
	}
	return found, err
}

func (f *fakeKeys) UseKey(_ context.Context, id string) (exists bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.useErr != nil {
		return false, f.useErr
	}
	f.written++
	for i := range f.keys {
		if f.keys[i].ID != id {
			continue
		}
		exists = true
		if now := time.Now(); f.keys[i].UsedAt == nil {
			f.keys[i].UsedAt = &now
		}
	}
	return exists, nil
}

func (f *fakeKeys) ChangeKeys(_ context.Context, client job.ID,
	decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	var own []job.APIKey
	for _, k := range f.keys {
		if k.ClientID == client {
			own = append(own, k)
		}
	}
	change, err := decide(f.clients[client], time.Now(), own)
	if err != nil {
		return err
	}
	for _, k := range change.Changed {
		f.keys[slices.IndexFunc(f.keys, func(old job.APIKey) bool { return old.ID == k.ID })] = k
		if f.changed != nil {
			f.changed(k.ID)
		}
	}
	if change.New != nil {
		f.keys = slices.Insert(f.keys, 0, *change.New)
	}
	return nil
}

func (f *fakeKeys) WatchKeys(ctx context.Context, changed func(string), connected func(bool)) {
	f.mu.Lock()
	f.changed, f.connected = changed, connected
	f.mu.Unlock()
	connected(true)
	<-ctx.Done()
	connected(false)
}
