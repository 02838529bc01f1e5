package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

type world struct {
	*apptest.World
	store  *fakeStore
	runner runnerFunc
	worker *Worker
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	w := &world{World: apptest.NewWorld(t), store: newFakeStore()}
	cfg := Config{
		Name: "test", Concurrency: 4, Lease: leaseTime, Heartbeat: heartbeat, Limit: apptest.Limit, Backoff: apptest.Backoff,
	}
	for _, f := range change {
		f(&cfg)
	}
	run := runnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		if w.runner != nil {
			return w.runner(ctx, d, attempt)
		}
		return goodResult(d), nil
	})
	w.worker = New(cfg, Deps{
		Store: w.store, Queue: w.Queue, Completer: batches.NewCompleter(nil, w.Queue, w.Metrics, w.Logger), GiveBack: w.store.giveBack,
		Runner: run, Metrics: w.Metrics, Log: w.Logger,
	})
	return w
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func working(t *testing.T, runner runnerFunc, f func(t *testing.T, w *world)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		w.runner = runner
		w.start()
		f(t, w)
	})
}

func run(t *testing.T, name string, runner runnerFunc, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { working(t, runner, f) })
}

func (w *world) start() (stop func()) { return w.Background(w.worker.Run) }

func (w *world) handle(t job.Task) error {
	return trouble(w.worker.Handle(context.Background(), t))
}

func (w *world) handling(t job.Task) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.handle(t) }()
	synctest.Wait()
	return answer
}

func (w *world) happens(t job.Task, to job.State) {
	w.store.update(func() { w.store.rows[t.JobID].move(to) })
}

func (w *world) cancel(t job.Task) {
	w.happens(t, job.Canceled)
	w.worker.Canceled(t.JobID)
}

func (w *world) ended(t job.Task, s job.State) job.Finish {
	w.T.Helper()
	r := w.store.row(t.JobID)
	require.Len(w.T, r.ends, 1, "history %v", r.history)
	require.Equal(w.T, s, r.ends[0].State)
	return r.ends[0]
}

func (w *world) identityNow() job.ID {
	w.worker.mu.Lock()
	defer w.worker.mu.Unlock()
	return w.worker.id
}

func (w *world) alive() bool {
	w.worker.mu.Lock()
	defer w.worker.mu.Unlock()
	return !w.worker.draining && !w.worker.id.IsZero()
}

func (w *world) refusing(not job.NotClaimed) {
	w.store.update(func() { w.store.refuse = func() job.NotClaimed { return not } })
}

const (
	leaseTime = 30 * time.Second
	heartbeat = 5 * time.Second
)

type runnerFunc func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error)

func (f runnerFunc) Run(ctx context.Context, d job.Definition, attempt int, _ job.Observer) (*job.Result, error) {
	return f(ctx, d, attempt)
}

func (runnerFunc) Probe(context.Context, job.Kind) error { return nil }

func fixed(result *job.Result, err error) runnerFunc {
	return func(context.Context, job.Definition, int) (*job.Result, error) { return result, err }
}

func takes(d time.Duration) runnerFunc {
	return func(ctx context.Context, definition job.Definition, _ int) (*job.Result, error) {
		if !app.Sleep(ctx, d) {
			return nil, context.Cause(ctx)
		}
		return goodResult(definition), nil
	}
}

func goodResult(d job.Definition) *job.Result {
	body := make([]byte, d.PayloadSize)
	return &job.Result{MediaType: "application/octet-stream", Body: body, SHA256: sha256.Sum256(body)}
}

type workFailure struct{ Reason job.Reason }

func (f workFailure) Error() string { return string(f.Reason) }

func (f workFailure) FailureReason() job.Reason { return f.Reason }

func trouble(err error) error {
	var failed *job.TaskFailed
	if errors.Is(err, job.ErrTaskStale) || errors.As(err, &failed) {
		return nil
	}
	return err
}
