package events

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Await reads a job again with each of its events until done says so. It costs
// storage nothing while nothing happens. When ctx ends first, it gives the job as
// it was read last, and over is true: its progress may have gone on without an
// event.
func (h *Hub) Await(
	ctx context.Context, client, id job.ID, read func(context.Context) (*job.Job, error), done func(*job.Job) bool,
) (last *job.Job, over bool, err error) {
	// Watched before it is read: no change falls between the two.
	notified, stop := h.watch(client, id, false)
	defer stop()
	for {
		j, err := inTurn(ctx, h, func() (*job.Job, error) { return read(ctx) })
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
