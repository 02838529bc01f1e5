package worker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
)

// world is the use cases with everything around them.
type world struct {
	*apptest.World
	runner    apptest.RunnerFunc
	completer *batches.Completer
	worker    *Worker
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	w := &world{World: apptest.NewWorld(t)}
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	w.worker = w.newWorker(change...)
	return w
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// working runs a test with a worker that is started; without a runner its work succeeds at once.
func working(t *testing.T, runner apptest.RunnerFunc, f func(t *testing.T, w *world)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		w.runner = runner
		w.start()
		f(t, w)
	})
}

// run is working as a subtest.
func run(t *testing.T, name string, runner apptest.RunnerFunc, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { working(t, runner, f) })
}

func (w *world) newWorker(change ...func(*Config)) *Worker {
	cfg := Config{
		Name: "test", Concurrency: 4, Lease: apptest.LeaseTime, Heartbeat: apptest.Heartbeat, Limit: apptest.Limit, Backoff: apptest.Backoff,
	}
	for _, f := range change {
		f(&cfg)
	}
	run := apptest.RunnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		if w.runner != nil {
			return w.runner(ctx, d, attempt)
		}
		return apptest.GoodResult(d), nil
	})
	return New(cfg, w.Store, w.Store, w.Queue, w.completer, run, w.Metrics, w.Logger)
}

// start runs the worker until the test ends or stop is called.
func (w *world) start() (stop func()) { return w.Background(w.worker.Run) }

// handle hands a task over, and gives what is wrong with the infrastructure.
func (w *world) handle(t job.Task) error {
	return apptest.Trouble(w.worker.Handle(context.Background(), t))
}

// handling hands a task over in the background; the channel gives the answer.
func (w *world) handling(t job.Task) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.handle(t) }()
	synctest.Wait()
	return answer
}
