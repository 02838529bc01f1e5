package jobs

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/job"
)

// worldJobs is the use cases of clients, and a worker, with everything around them.
type worldJobs struct {
	*apptest.World
	Store     *fakeStore
	runner    apptest.RunnerFunc
	listener  *connection
	hub       *events.Hub
	completer *batches.Completer
	worker    *worker.Worker
}

func newWorldJobs(t testing.TB) *worldJobs {
	w := &worldJobs{World: apptest.NewWorld(t)}
	w.Store = newFakeStore(w.World.Store)
	w.listener = &connection{}
	w.listener.up.Store(true)
	w.hub = events.NewHub(nil, w.listener, w.Metrics, w.Logger)
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	w.worker = w.newWorker()
	return w
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *worldJobs)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldJobs(t)) })
}

// serving runs a test with a service that has room for ten jobs.
func serving(t *testing.T, f func(t *testing.T, w *worldJobs, s *Service)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *worldJobs) { f(t, w, w.service(10)) })
}

// run is serving as a subtest.
func run(t *testing.T, name string, f func(t *testing.T, w *worldJobs, s *Service)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { serving(t, f) })
}

func (w *worldJobs) newWorker() *worker.Worker {
	cfg := worker.Config{
		Name: "test", Concurrency: 4, Lease: apptest.LeaseTime, Heartbeat: apptest.Heartbeat, Limit: apptest.Limit, Backoff: apptest.Backoff,
	}
	run := apptest.RunnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		if w.runner != nil {
			return w.runner(ctx, d, attempt)
		}
		return apptest.GoodResult(d), nil
	})
	return worker.New(cfg, worker.Deps{
		Store: w.Store, Queue: w.Queue, Completer: w.completer, Runner: run, Metrics: w.Metrics, Log: w.Logger,
		GiveBack: func(context.Context, []job.Held) error { return nil },
	})
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

// second gives the error of a call that answers with a value, too.
func second[T any](_ T, err error) error { return err }

// connection is a listener that is connected while it is up.
type connection struct{ up atomic.Bool }

func (*connection) Watch(job.ID)      {}
func (*connection) Unwatch(job.ID)    {}
func (c *connection) Connected() bool { return c.up.Load() }

// giveBack rescues what lost workers held.
func (w *worldJobs) giveBack() error {
	r := &rescue.Rescuer{
		Store: w.Store, Queue: w.Queue, Completer: w.completer, Backoff: apptest.Backoff, Metrics: w.Metrics, Tracer: w.Tracer(), Log: w.Logger,
	}
	return r.GiveBack(context.Background(), w.Orphans())
}

// service makes the use cases of clients; limit bounds active and queued jobs.
func (w *worldJobs) service(limit int, change ...func(*Config)) *Service {
	cfg := Config{Catalogue: testCatalogue, MaxAttempts: 4, Backoff: apptest.Backoff}
	for _, f := range change {
		f(&cfg)
	}
	capacity := NewCapacity(oneClient(limit, limit), w.Store, w.Logger)
	return New(cfg, Deps{
		Jobs: w.Store, Reader: w.Store, Batches: w.Store, Queue: w.Queue, Progress: w.Queue,
		Capacity: capacity, Hub: w.hub, Completer: w.completer, Metrics: w.Metrics, Log: w.Logger,
	})
}

// limit changes the limits of all jobs.
func (s *Service) limit(jobs int) {
	c := s.deps.Capacity
	_ = c.close(context.Background())
	c.limit, c.again = job.Load{Active: jobs, Queued: jobs}, time.Time{}
}

// held is the room that is used, or counted as used.
func (w *worldJobs) held(s *Service) job.Load {
	c := s.deps.Capacity
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.Store.ledger.bound.Plus(c.lease.used, 1)
}

// submit submits a job that must be accepted.
func (w *worldJobs) submit(s *Service, change ...func(*job.Request)) job.Receipt {
	w.T.Helper()
	receipt := apptest.Must(s.Submit(context.Background(), newRequest(change...)))(w.T)
	return receipt
}

// refused submits a job that must not be, and gives the refusal.
func (w *worldJobs) refused(s *Service, change ...func(*job.Request)) *job.Error {
	w.T.Helper()
	_, err := s.Submit(context.Background(), newRequest(change...))
	var refusal *job.Error
	require.ErrorAs(w.T, err, &refusal)
	return refusal
}

// nothingDone asserts that a refused submission left no trace.
func (w *worldJobs) nothingDone() {
	w.T.Helper()
	require.Empty(w.T, w.Store.Rows)
	require.Empty(w.T, w.Queue.Sent())
	require.Empty(w.T, w.Queue.Notifications())
	require.Zero(w.T, w.Sum("jobs_submitted_total")+w.Sum("jobs_queued_total"))
	require.Empty(w.T, w.Log.Lines(w.T, map[string]any{"msg": "job transition"}))
}

var testCatalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: apptest.Limit}

func newRequest(change ...func(*job.Request)) job.Request {
	r := job.Request{
		ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
		Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func newRequests(n int) []job.Request {
	items := make([]job.Request, n)
	for i := range items {
		items[i] = newRequest()
	}
	return items
}

// newBatchRequest is a request for jobs, one for each item.
func newBatchRequest(items ...job.Request) job.BatchRequest {
	r := job.BatchRequest{ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Hash: [32]byte{1}, Language: "de"}
	for i, item := range items {
		r.Items = append(r.Items, job.ItemRequest{ItemID: fmt.Sprint("item-", i), Request: item})
	}
	return r
}

func deferred(d time.Duration) func(*job.Request) {
	return func(r *job.Request) {
		at := time.Now().Add(d)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
}

func withKey(key string) func(*job.Request)   { return func(r *job.Request) { r.IdempotencyKey = key } }
func calling(url string) func(*job.Request)   { return func(r *job.Request) { r.Callback = url } }
func ofKind(kind job.Kind) func(*job.Request) { return func(r *job.Request) { r.WorkKind = kind } }
func of(client job.ID) func(*job.Request)     { return func(r *job.Request) { r.ClientID = client } }
func inState(s job.State) func(*apptest.Row)  { return func(r *apptest.Row) { r.State = s } }

// flawed is a request in whose body something is wrong.
func flawed(pointer string, malformed bool) func(*job.Request) {
	return func(r *job.Request) {
		r.Malformed, r.Violations = malformed, []job.Violation{{Pointer: pointer, Detail: "Not as it should be."}}
	}
}

// pointers gives what violations point at.
func pointers(violations []job.Violation) (list []string) {
	for _, v := range violations {
		list = append(list, v.Pointer)
	}
	return list
}
