package jobs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/job"
)

// model is three workers, two processes that could lead, and clients, on
// stores that fail in all ways at random.
type model struct {
	*worldJobs
	random *lockedRand
	loads  []*worker.Worker
	slots  []*app.Metrics // of each worker
	cut    [3]atomic.Bool // whether a worker's way to storage is cut, as by a partition
	clean  atomic.Bool    // no more faults

	service *Service
	ids     []job.ID
	waiting sync.WaitGroup
}

// ofWorker is the number of the worker that asks storage, in its context.
type ofWorker struct{}

type lockedRand struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (l *lockedRand) n(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.IntN(n)
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{worldJobs: newWorldJobs(t), random: &lockedRand{r: rand.New(rand.NewPCG(seed, 0))}}
	m.Store.Chaos = func(ctx context.Context) (before, after error) {
		if i, ok := ctx.Value(ofWorker{}).(int); ok && m.cut[i].Load() {
			return apptest.ErrStorage, nil
		}
		if m.clean.Load() {
			return nil, nil
		}
		switch m.random.n(20) {
		case 0:
			return apptest.ErrStorage, nil
		case 1:
			return nil, apptest.ErrStorage
		}
		return nil, nil
	}
	run := apptest.RunnerFunc(func(ctx context.Context, d job.Definition, attempt int) (*job.Result, error) {
		switch m.random.n(6) {
		case 0:
			panic("boom")
		case 1:
			return nil, apptest.Failure{Reason: job.DependencyFailed}
		}
		return apptest.Takes(time.Duration(m.random.n(40_000))*time.Millisecond)(ctx, d, attempt)
	})
	for i := range m.cut {
		metrics := app.NewMetrics(nil)
		load := worker.New(worker.Config{
			Name: "model", Concurrency: 5, Lease: apptest.LeaseTime, Heartbeat: apptest.Heartbeat, Limit: 30 * time.Second, Backoff: apptest.Backoff,
		}, m.Store, m.Store, m.Queue, m.completer, run, metrics, m.Logger)
		m.loads, m.slots = append(m.loads, load), append(m.slots, metrics)
		m.Background(func(ctx context.Context) { load.Run(context.WithValue(ctx, ofWorker{}, i)) })
		for range 6 {
			m.Background(func(ctx context.Context) { m.fetch(context.WithValue(ctx, ofWorker{}, i), load) })
		}
	}
	m.lead()
	m.lead()
	m.service = m.worldJobs.service(100_000)
	m.Background(m.completer.Run)
	m.Background(m.hub.Run)
	return m
}

// fetch is one slot of the queue's server.
func (m *model) fetch(ctx context.Context, load *worker.Worker) {
	for app.Sleep(ctx, 200*time.Millisecond) {
		if t, ok := m.take(); ok {
			m.done(t, load.Handle(ctx, t))
		}
	}
}

// take gives a task that is due, and makes it active.
func (m *model) take() (taken job.Task, ok bool) {
	m.Queue.Change(func() {
		for name, t := range m.Queue.Tasks {
			if m.Queue.Err == nil && t.State == "pending" && !t.RunAt.After(time.Now()) {
				t.State = "active"
				m.Queue.Tasks[name] = t
				taken, ok = t.Task, true
				return
			}
		}
	})
	return taken, ok
}

// done ends an active task; with an error it is offered again later.
func (m *model) done(t job.Task, err error) {
	m.Queue.Change(func() {
		name := apptest.TaskName(t)
		if _, ok := m.Queue.Tasks[name]; !ok {
			return // flushed meanwhile
		}
		delete(m.Queue.Tasks, name)
		if apptest.Trouble(err) != nil {
			wait := time.Second
			if early := (*job.TaskEarly)(nil); errors.As(err, &early) {
				wait = early.Wait
			}
			t.RunAt = time.Now().Add(wait)
			m.Queue.Tasks[name] = apptest.Queued{Task: t, State: "pending"}
		}
	})
}

// client submits, cancels and retries.
func (m *model) client(jobs int) {
	for range jobs {
		time.Sleep(time.Duration(m.random.n(1000)) * time.Millisecond)
		r := newRequest(ofKind(""), func(r *job.Request) { r.AutoRetry = m.random.n(2) == 0 })
		if m.random.n(4) == 0 {
			deferred(time.Duration(1+m.random.n(120)) * time.Second)(&r)
		}
		if receipt, err := m.service.Submit(context.Background(), r); err == nil {
			m.ids = append(m.ids, receipt.JobID)
			m.waiting.Go(func() { m.await(receipt.JobID) })
		}
		if len(m.ids) == 0 {
			continue
		}
		id := m.ids[m.random.n(len(m.ids))]
		switch m.random.n(10) {
		case 0, 1:
			_, _ = m.service.Cancel(context.Background(), apptest.ClientA, id)
			for _, load := range m.loads {
				load.Canceled(id)
			}
		case 2, 3:
			_, _ = m.service.Retry(context.Background(), apptest.ClientA, id)
		case 4:
			b, _, err := m.service.SubmitBatch(context.Background(), newBatchRequest(newRequest(), newRequest(deferred(10*time.Second)),
				newRequest(ofKind(job.PayloadInvalid))))
			if err == nil && m.random.n(3) == 0 {
				time.Sleep(time.Duration(m.random.n(30)) * time.Second)
				_, _ = m.service.CancelBatch(context.Background(), apptest.ClientA, b.ID)
			}
		}
	}
}

// await waits for the end of a job. All notifications are lost on their way.
func (m *model) await(id job.ID) {
	for {
		j, err := m.service.Await(context.Background(), apptest.ClientA, id, isFinal)
		if err == nil {
			if !isFinal(j) {
				m.T.Errorf("the wait is over, and the job is %s", j.State)
			}
			return
		}
		time.Sleep(time.Second)
	}
}

// misfortune does something terrible every now and then.
func (m *model) misfortune(ctx context.Context) {
	for app.Sleep(ctx, time.Duration(1+m.random.n(20))*time.Second) {
		switch m.random.n(5) {
		case 0:
			m.Queue.Flush()
		case 1:
			m.Queue.Change(func() { m.Queue.Err = apptest.ErrQueue })
			app.Sleep(ctx, time.Duration(m.random.n(40))*time.Second)
			m.Queue.Change(func() { m.Queue.Err = nil })
		case 2:
			m.Store.Expire()
		case 3:
			m.Queue.Change(func() { m.Queue.Deaf = !m.Queue.Deaf })
		case 4:
			cut := &m.cut[m.random.n(len(m.cut))]
			cut.Store(true)
			app.Sleep(ctx, time.Duration(m.random.n(60))*time.Second)
			cut.Store(false)
		}
	}
}

// Whatever happens, once it is over every accepted job ends, in steps that the
// table allows (the fake store checks each), once an attempt; whoever waits for
// one is answered; and every batch has an outcome.
func TestEveryJobEndsWhateverHappens(t *testing.T) {
	for seed := range uint64(4) {
		apptest.Run(t, fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed)
			calm := m.Background(m.misfortune)
			m.client(150)
			calm()
			m.clean.Store(true)
			apptest.Pass(10 * time.Minute)

			require.Greater(t, len(m.ids), 100)
			m.waiting.Wait()
			require.Zero(t, m.Sum("watchers"))
			m.Store.Mu.Lock()
			defer m.Store.Mu.Unlock()
			for id, r := range m.Store.Rows {
				require.True(t, r.State.Final(), "%s: %v", id, r.History)
				attempts := map[int]bool{}
				for _, end := range r.Ends {
					require.False(t, attempts[end.Attempt], "attempt %d ended twice: %v", end.Attempt, r.History)
					attempts[end.Attempt] = true
				}
			}
			require.NotEmpty(t, m.Store.Batches)
			for _, b := range m.Store.Batches {
				require.NotNil(t, b.Outcome)
			}
			m.Queue.Mu.Lock()
			defer m.Queue.Mu.Unlock()
			require.Empty(t, m.Queue.Tasks, "at rest no task is left")
			for i, load := range m.loads {
				require.Zero(t, m.Metric(m.slots[i].SlotsUsed), "jobs that it holds")
				require.True(t, load.Alive())
			}
		})
	}
}
