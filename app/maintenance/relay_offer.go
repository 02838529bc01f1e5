package maintenance

import (
	"context"
	"slices"

	"github.com/forgerun/forgerun/job"
)

// relay enqueues those of the tasks that the queue does not have, and reports how many that were.
func (r *Relay) relay(ctx context.Context, tasks []job.Task, by string) (enqueued int, err error) {
	enqueued, used, err := r.offer(ctx, tasks)
	if err == nil && len(used) > 0 {
		var more int
		more, err = r.rename(ctx, used)
		enqueued += more
	}
	r.metrics.Repaired.WithLabelValues(by).Add(float64(enqueued))
	return enqueued, err
}

// rename gives tasks whose id is used a new one, except those that a living worker has taken and is about to claim. If the
// new id is used too, or the job is locked, the probe finds it.
func (r *Relay) rename(ctx context.Context, used []job.Task) (enqueued int, err error) {
	lost, err := r.queue.Missing(ctx, used)
	if err != nil || len(lost) == 0 {
		return 0, err
	}
	renamed, err := r.store.Redispatch(ctx, lost)
	renamed = slices.DeleteFunc(renamed, job.Task.Aside) // it was put aside meanwhile: resuming it names it anew
	if err != nil || len(renamed) == 0 {
		return 0, err
	}
	enqueued, _, err = r.offer(ctx, renamed)
	return enqueued, err
}

// offer enqueues tasks, and reports how many were not in the queue yet, and which
// cannot be because their id is used.
func (r *Relay) offer(ctx context.Context, tasks []job.Task) (enqueued int, used []job.Task, err error) {
	answers, err := r.queue.Dispatch(ctx, tasks)
	if err != nil {
		return 0, nil, err
	}
	for i, t := range tasks {
		switch answers[i] {
		case job.TaskEnqueued:
			enqueued++
		case job.TaskIDUsed:
			used = append(used, t)
		}
	}
	return enqueued, used, nil
}

// unknownRoom says that the room in the window was not asked for: as long as
// nothing waits it does not matter.
const unknownRoom = -1 << 31

// room is for how many more tasks the queue has room up to the limit, counting
// those in the given states.
func (r *Relay) room(ctx context.Context, limit int, states ...string) (int, error) {
	depth, err := r.queue.Depth(ctx)
	if err != nil {
		return 0, err
	}
	for _, state := range states {
		limit -= int(depth[state])
	}
	return limit, nil
}

// batch is how many jobs are looked at together: so many may be too many in the
// queue, too.
func (r *Relay) batch() int { return min(relayBatch, r.window) }

// passed gives the watermark. One that lies ahead is from before this machine's clock
// was set back: the walk starts over.
func (r *Relay) passed() job.QueueCursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watermark.RunAt.After(r.Clock.Now()) {
		r.watermark = job.QueueCursor{}
	}
	return r.watermark
}

// rewind has the walk start over from the oldest job.
func (r *Relay) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watermark = job.QueueCursor{}
}

// startOver is rewind for others than the relay's loop, which may be about to move the watermark on.
func (r *Relay) startOver() { r.again.Store(true) }

// pass moves the watermark on to the last of the tasks that is old enough: a
// younger one may be committed later than its successors.
func (r *Relay) pass(tasks []job.Task) {
	oldEnough := r.Clock.Now().Add(-r.minAge())
	for _, t := range slices.Backward(tasks) {
		if !t.RunAt.After(oldEnough) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.watermark = t.Cursor()
			return
		}
	}
}
