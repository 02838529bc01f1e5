package delivery

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

const testTimeout = 10 * time.Second

var testPolicy = job.DeliveryPolicy{MaxRetries: 2, Backoff: job.Backoff{Base: 5 * time.Second, Max: time.Minute}}

type world struct {
	*apptest.World
	url    string
	store  *repo.Store
	queue  *apptest.Queue
	worker *Worker
	relay  *Relay
}

type send func(ctx context.Context, p job.ClaimedDelivery) job.Sent

func (f send) Send(ctx context.Context, p job.ClaimedDelivery) job.Sent { return f(ctx, p) }

func newWorld(t *testing.T, sender send, change ...func(*WorkerConfig)) *world {
	t.Parallel()
	w := &world{World: apptest.NewWorld(t), url: repotest.URL(t)}
	w.store, w.queue = repotest.OpenURL(t, w.url), w.World.Queue
	cfg := WorkerConfig{Concurrency: 10, Timeout: testTimeout, Policy: testPolicy, Tracer: w.Tracer()}
	for _, f := range change {
		f(&cfg)
	}
	w.worker = NewWorker(cfg, w.store, sender, w.queue, w.Metrics, w.Logger)
	t.Cleanup(func() { w.worker.Stop(ended()) })
	w.relay = NewRelay(w.store, w.queue, nil, w.Metrics, w.Logger)
	return w
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func always() bool { return true }

func (w *world) webhook(client job.ID, events ...string) job.ID {
	id := app.NewID()
	apptest.Must(w.store.InsertWebhook(w.T.Context(), job.Webhook{
		ID: id, ClientID: client, URL: "https://" + id.String() + ".example/secret?token=1", Events: append(events, job.EventBatchCompleted),
		ContentMode: job.ContentBinary, Secrets: []job.SealedSecret{{Sealed: []byte("sealed")}},
	}))(w.T)
	return id
}

func (w *world) deliveries(n int, client, webhook job.ID) (tasks []job.DeliveryTask) {
	for range n {
		tasks = append(tasks, taskOf(apptest.Must(w.store.TestWebhook(w.T.Context(), client, webhook))(w.T)))
	}
	return tasks
}

func (w *world) delivery() job.DeliveryTask {
	return w.deliveries(1, apptest.ClientA, w.webhook(apptest.ClientA))[0]
}

func (w *world) ofJob(change func(*job.Job)) (job.ID, job.DeliveryTask) {
	j := job.Job{ID: app.NewID(), ClientID: apptest.ClientA, Type: job.Execute, WorkKind: job.SuccessFast,
		Definition: apptest.DefinitionOf(job.SuccessFast), MaxAttempts: 1, Language: "en", RequestID: "request-1"}
	change(&j)
	apptest.Must(w.store.InsertJob(w.T.Context(), job.Submission{Job: j}))(w.T)
	tasks := apptest.Must(w.store.NewDeliveries(w.T.Context(), []job.ID{j.ID}, nil))(w.T)
	require.NotEmpty(w.T, tasks)
	return j.ID, tasks[0]
}

func (w *world) handle(t job.DeliveryTask) error { return w.worker.Handle(context.Background(), t) }

func (w *world) handleAll(tasks []job.DeliveryTask) (wait, quit func()) {
	var handling sync.WaitGroup
	stop, once := make(chan struct{}), sync.Once{}
	quit = func() { once.Do(func() { close(stop) }) }
	w.T.Cleanup(quit)
	for _, t := range tasks {
		handling.Go(func() {
			var early *job.TaskEarly
			for errors.As(w.handle(t), &early) {
				select {
				case <-time.After(min(early.Wait, 20*time.Millisecond)):
				case <-stop:
					return
				}
			}
		})
	}
	return handling.Wait, quit
}

func (w *world) read(t job.DeliveryTask) (*job.Delivery, []job.DeliveryAttempt) {
	d, attempts, err := w.store.Delivery(w.T.Context(), t.ClientID, job.DeliveryOwner{WebhookID: t.Endpoint}, t.ID)
	require.NoError(w.T, err)
	return d, attempts
}

func (w *world) requireUntouched(t job.DeliveryTask) {
	w.T.Helper()
	d, attempts := w.read(t)
	require.Equal(w.T, []any{job.DeliveryPending, 0}, []any{d.State, len(attempts)})
	require.Nil(w.T, d.ClaimedUntil)
}

func (w *world) exec(sql string, args ...any) { repotest.Exec(w.T, w.url, sql, args...) }

func (w *world) count(what string) int { return repotest.Count(w.T, w.url, what) }

func (w *world) eventually(what string, condition func() bool) {
	testkit.Eventually(w.T, what, condition)
}

func answers(status int) send {
	return func(context.Context, job.ClaimedDelivery) job.Sent {
		class := job.SendServerError
		switch status {
		case 200:
			class = ""
		case 410:
			class = job.SendGone
		}
		return answer(class, status)
	}
}

func answer(class job.SendError, status int) job.Sent {
	return job.Sent{Attempt: job.DeliveryAttempt{StartedAt: time.Now(), Duration: 30 * time.Millisecond, Status: status, Error: class,
		Body: []byte("an answer")}}
}

type receivers struct {
	hangs func(job.ClaimedDelivery) bool
	goOn  chan struct{}

	mu              sync.Mutex
	sending, most   map[job.ID]int
	answered, begun map[job.ID]int
}

func newReceivers(hangs func(job.ClaimedDelivery) bool) *receivers {
	return &receivers{hangs: hangs, goOn: make(chan struct{}), sending: map[job.ID]int{}, most: map[job.ID]int{},
		answered: map[job.ID]int{}, begun: map[job.ID]int{}}
}

func (r *receivers) send(ctx context.Context, p job.ClaimedDelivery) job.Sent {
	r.change(func() {
		r.begun[p.Endpoint]++
		r.sending[p.Endpoint]++
		r.most[p.Endpoint] = max(r.most[p.Endpoint], r.sending[p.Endpoint])
	})
	defer r.change(func() { r.sending[p.Endpoint]--; r.answered[p.Endpoint]++ })
	if r.hangs(p) {
		select {
		case <-r.goOn:
		case <-ctx.Done():
			return answer(job.SendTimeout, 0)
		}
	}
	return answer("", 200)
}

func (r *receivers) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *receivers) of(counts map[job.ID]int, endpoint job.ID) (n int) {
	r.change(func() { n = counts[endpoint] })
	return n
}
