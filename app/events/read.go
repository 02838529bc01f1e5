package events

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// JobEvents returns at most `limit` events of a job after the given seq.
func (h *Hub) JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	log, err := limitedRead(ctx, h, func() (job.Log, error) { return h.store.Events(ctx, client, id, after, limit) })
	seen := log.Last
	if err != nil {
		seen = after // so that the next sweep notifies the watcher, which then tries again
	}
	h.saw(client, id, job.Position{Seq: seen})
	return log, err
}

// ClientEvents returns at most `limit` events of all of a client's jobs and batches after a position.
func (h *Hub) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	feed, err := limitedRead(ctx, h, func() (job.Feed, error) { return h.store.ClientEvents(ctx, client, after, limit) })
	seen := after
	if n := len(feed.Events); n > 0 {
		seen = feed.Events[n-1].Position
	}
	// If there are more events, the watcher reads again anyway, so the hub records no position.
	if err != nil || !feed.More {
		h.saw(client, job.ID{}, seen)
	}
	return feed, err
}

// Await reads a job after each of its events, until `done` returns true. If ctx ends first, it returns the job from the last read, and
// `over` is true. A change of the progress alone causes no read.
func (h *Hub) Await(
	ctx context.Context, client, id job.ID, read func(context.Context) (*job.Job, error), done func(*job.Job) bool,
) (last *job.Job, over bool, err error) {
	// Watch before reading, so that no change is missed.
	notified, stop := h.watch(client, id, false)
	defer stop()
	for {
		j, err := limitedRead(ctx, h, func() (*job.Job, error) { return read(ctx) })
		switch {
		case err == nil && done(j):
			return j, false, nil
		case err == nil:
			last = j
			h.saw(client, id, job.Position{Seq: j.EventSeq})
		case last == nil || ctx.Err() == nil:
			return nil, false, err
		}
		select {
		case <-notified:
		case <-ctx.Done():
			return last, true, nil
		}
	}
}

func limitedRead[T any](ctx context.Context, h *Hub, read func() (T, error)) (answer T, err error) {
	if err := h.reads.Acquire(ctx, 1); err != nil {
		return answer, err
	}
	defer h.reads.Release(1)
	return read()
}

// saw stores that a watcher has read up to p. If there are later events, the next sweep notifies the watcher.
func (h *Hub) saw(client, id job.ID, p job.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.clients[client][id]; t != nil && p.Before(t.seen) {
		t.seen = p
	}
}
