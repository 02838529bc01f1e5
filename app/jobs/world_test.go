package jobs

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// worldJobs is the use cases of clients, and a worker, with everything around them.
type worldJobs struct {
	*apptest.World
	Store     *fakeStore
	runner    apptest.RunnerFunc
	listener  *connection
	hub       *events.Hub
	reader    *events.Reader
	completer *batches.Completer
	worker    *worker.Worker
}

func newWorldJobs(t testing.TB) *worldJobs {
	w := &worldJobs{World: apptest.NewWorld(t)}
	w.Store = newFakeStore(w.World.Store)
	w.listener = &connection{}
	w.listener.up.Store(true)
	w.hub = events.NewHub(w.Store, w.listener, w.Metrics, w.Logger)
	w.reader = events.NewReader(w.Store, w.hub)
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	w.worker = w.newWorker()
	return w
}

func (w *worldJobs) newWorker(change ...func(*worker.Config)) *worker.Worker {
	cfg := worker.Config{
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
	return worker.New(cfg, w.Store, w.Store, w.Queue, w.completer, run, w.Metrics, w.Logger)
}

// start runs the worker until the test ends or stop is called.
func (w *worldJobs) start() (stop func()) { return w.Background(w.worker.Run) }

// handle hands a task to the worker as the queue would.
func (w *worldJobs) handle(t job.Task) error {
	return apptest.Trouble(w.worker.Handle(context.Background(), t))
}

// handling hands a task over in the background; the channel gives the answer.
func (w *worldJobs) handling(t job.Task) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- w.handle(t) }()
	synctest.Wait()
	return answer
}

// lead runs maintenance until the test ends.
func (w *worldJobs) lead() (m *maintenance.Maintenance, stop func()) {
	m = maintenance.New(maintenance.Deps{
		Store: w.Store, Claims: w.Store, Backlog: w.Store, Queue: w.Queue, Relay: maintenance.NewRelay(w.Store, w.Queue, apptest.Window,
			w.Metrics, w.Logger),
		Deliveries: delivery.NewRelay(apptest.NoDeliveries{}, w.Queue, w.Metrics, w.Logger),
		Completer:  w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	})
	return m, w.Background(m.Run)
}

// process hands a task to the worker as the queue does: in a span that goes on
// from where the task says.
func (w *worldJobs) process(t job.Task) error {
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	return apptest.Trouble(w.worker.Handle(ctx, t))
}

// workerID is that of the only worker.
func (w *worldJobs) workerID() job.ID {
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	require.Len(w.T, w.Store.Workers, 1)
	return slices.Collect(maps.Keys(w.Store.Workers))[0]
}

// giveBack rescues what lost workers held.
func (w *worldJobs) giveBack() error {
	r := &rescue.Rescuer{
		Store: w.Store, Queue: w.Queue, Completer: w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	}
	return r.GiveBack(context.Background(), w.Orphans())
}

// second gives the error of a call that answers with a value, too.
func second[T any](_ T, err error) error { return err }

// connection is a listener that is connected while it is up.
type connection struct{ up atomic.Bool }

func (*connection) Watch(job.ID)      {}
func (*connection) Unwatch(job.ID)    {}
func (c *connection) Connected() bool { return c.up.Load() }
