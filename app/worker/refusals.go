package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	refusalWait   = time.Second // after which a task of a refused kind is offered again, to any worker
	probeInterval = time.Second
)

// refusals are the kinds that cannot be run on this machine at the moment: a worker
// that fails them at once would get more of them than any other.
type refusals struct {
	mu    sync.Mutex
	kinds map[job.Kind]bool
	begun chan struct{} // there is one
}

func newRefusals() *refusals {
	return &refusals{kinds: map[job.Kind]bool{}, begun: make(chan struct{}, 1)}
}

func (r *refusals) has(k job.Kind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kinds[k]
}

// Refused lists the kinds of which this worker takes no jobs at the moment.
func (w *Worker) Refused() (kinds []job.Kind) {
	w.refused.mu.Lock()
	defer w.refused.mu.Unlock()
	for k := range w.refused.kinds {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// refuseKind takes no more jobs of the kind until a probe succeeds.
func (w *Worker) refuseKind(ctx context.Context, k job.Kind, err error) {
	w.refused.mu.Lock()
	defer w.refused.mu.Unlock()
	if w.refused.kinds[k] {
		return
	}
	w.refused.kinds[k] = true
	w.metrics.KindsRefused.Set(float64(len(w.refused.kinds)))
	w.log.ErrorContext(ctx, "this machine lacks what jobs of a kind need; none is taken until that is mended", "action", "refuse",
		"work_kind", string(k), app.ErrorFields(err))
	select {
	case w.refused.begun <- struct{}{}:
	default:
	}
}

// allowKind takes jobs of the kind again.
func (w *Worker) allowKind(ctx context.Context, k job.Kind) {
	w.refused.mu.Lock()
	defer w.refused.mu.Unlock()
	delete(w.refused.kinds, k)
	w.metrics.KindsRefused.Set(float64(len(w.refused.kinds)))
	w.log.InfoContext(ctx, "jobs of a kind are taken again", "action", "refuse", "work_kind", string(k))
}

// ProbeRefused tries again and again what this worker refuses, until ctx ends.
func (w *Worker) ProbeRefused(ctx context.Context) {
	for {
		select {
		case <-w.refused.begun:
		case <-ctx.Done():
			return
		}
		for kinds := w.Refused(); len(kinds) > 0; kinds = w.Refused() {
			if !app.Sleep(ctx, probeInterval) {
				return
			}
			for _, k := range kinds {
				if w.runner.Probe(ctx, k) == nil {
					w.allowKind(ctx, k)
				}
			}
		}
	}
}
