package events

import (
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	// SweepInterval is the time between sweeps while the connection for notifications is down. While the connection is up, a sweep runs only
	// once per calmRounds intervals.
	SweepInterval = time.Second
	calmRounds    = 5
	sweepChunk    = 1000 // histories per query
)

// Run sweeps until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	failed := false
	for round := 1; app.Sleep(ctx, SweepInterval); round++ {
		if !failed && h.canSkip(round) {
			continue
		}
		err := h.sweep(ctx)
		failed = err != nil
		if failed && ctx.Err() == nil {
			h.log.WarnContext(ctx, "cannot look for missed events", "action", "watch", app.ErrorFields(err))
		}
	}
}

func (h *Hub) canSkip(round int) bool { return h.listener.Connected() && round%calmRounds != 0 }

func (h *Hub) sweep(ctx context.Context) error {
	jobs, feeds := h.watched()
	for topics := range slices.Chunk(jobs, sweepChunk) {
		ids := make([]job.ID, len(topics))
		for i, t := range topics {
			ids[i] = t.job
		}
		seqs, err := h.store.EventSeqs(ctx, ids)
		if err != nil {
			return err
		}
		h.compare(topics, func(t *topic) (job.Position, bool) {
			seq, ok := seqs[t.job]
			return job.Position{Seq: seq}, ok
		})
	}
	for topics := range slices.Chunk(feeds, sweepChunk) {
		ids := make([]job.ID, len(topics))
		for i, t := range topics {
			ids[i] = t.client
		}
		latest, err := h.store.LatestPositions(ctx, ids)
		if err != nil {
			return err
		}
		h.compare(topics, func(t *topic) (job.Position, bool) { return latest[t.client], true })
	}
	return nil
}

func (h *Hub) watched() (jobs, feeds []*topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topics := range h.clients {
		for id, t := range topics {
			if id.IsZero() {
				feeds = append(feeds, t)
			} else {
				jobs = append(jobs, t)
			}
		}
	}
	return jobs, feeds
}

func (h *Hub) compare(topics []*topic, latest func(*topic) (p job.Position, there bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		p, there := latest(t)
		missed := !there || t.seen.Before(p)
		if there && (missed || t.seen == unread) {
			t.seen = p
		}
		if missed {
			h.notify(t, job.Notification{ClientID: t.client, JobID: t.job}, app.NotifiedBySweep)
		}
	}
}
