package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	refusalWait   = time.Second // after this time the queue offers a refused task to the workers again
	probeInterval = time.Second
)

// refuses reports whether this machine currently cannot run jobs of a kind. Such jobs fail quickly. Without the refusal, this worker would
// soon be free again, and would take and fail most jobs of the kind.
func (w *Worker) refuses(k job.Kind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused[k]
}

// Refused returns the kinds that this worker currently refuses.
func (w *Worker) Refused() []job.Kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.refused))
}

// refuseKind refuses jobs of the kind until a probe succeeds.
func (w *Worker) refuseKind(ctx context.Context, k job.Kind, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused[k] {
		return
	}
	w.refused[k] = true
	w.Metrics.KindsRefused.Set(float64(len(w.refused)))
	w.Log.ErrorContext(ctx, "this machine lacks resources for a work kind; the worker takes no jobs of this kind", "action", "refuse",
		"work_kind", string(k), app.ErrorFields(err))
}

func (w *Worker) allowKind(ctx context.Context, k job.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, k)
	w.Metrics.KindsRefused.Set(float64(len(w.refused)))
	w.Log.InfoContext(ctx, "resumed taking jobs of a work kind", "action", "refuse", "work_kind", string(k))
}

// ProbeRefused probes the refused kinds periodically until ctx ends.
func (w *Worker) ProbeRefused(ctx context.Context) {
	for app.Sleep(ctx, probeInterval) {
		for _, k := range w.Refused() {
			if w.Runner.Probe(ctx, k) == nil {
				w.allowKind(ctx, k)
			}
		}
	}
}
