package events

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Store reads histories.
type Store interface {
	Events(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error)
	ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error)
	FeedEnd(ctx context.Context) (job.Position, error)
}

// Reader reads histories for watchers: each read takes its turn, and notes in the
// hub how far the watcher has come.
type Reader struct {
	store Store
	hub   *Hub
}

// NewReader makes a reader of histories.
func NewReader(store Store, hub *Hub) *Reader {
	return &Reader{store: store, hub: hub}
}

// JobEvents reads at most limit events of a job after the given seq.
func (r *Reader) JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	log, err := inTurn(ctx, r.hub, func() (job.Log, error) { return r.store.Events(ctx, client, id, after, limit) })
	seen := log.Last
	if err != nil {
		seen = after // watchers are notified to try again
	}
	r.hub.saw(client, id, job.Position{Seq: seen})
	return log, err
}

// ClientEvents reads at most limit events of all of a client's jobs and batches
// after the given position.
func (r *Reader) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	feed, err := inTurn(ctx, r.hub, func() (job.Feed, error) { return r.store.ClientEvents(ctx, client, after, limit) })
	seen := after
	if n := len(feed.Events); n > 0 {
		seen = feed.Events[n-1].Position
	}
	// Where there is more the reader knows it by itself.
	if err != nil || !feed.More {
		r.hub.saw(client, job.ID{}, seen)
	}
	return feed, err
}

// FeedEnd is the position after everything that ClientEvents can give now.
func (r *Reader) FeedEnd(ctx context.Context) (job.Position, error) {
	return r.store.FeedEnd(ctx)
}

// Watch receives the notifications of one job, or with the zero id of all of a client's
// jobs and batches: see Hub.Watch.
func (r *Reader) Watch(client, id job.ID) (notifications <-chan job.Notification, stop func()) {
	return r.hub.Watch(client, id)
}
