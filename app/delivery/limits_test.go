package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func TestHangingEndpointDoesNotDelayOthers(t *testing.T) {
	var hangs job.ID
	r := newReceivers(func(p job.ClaimedDelivery) bool { return p.Endpoint == hangs })
	w := newWorld(t, r.send)
	hangs = w.webhook(apptest.ClientA)
	healthy := w.webhook(apptest.ClientA)
	_, quit := w.handleAll(w.deliveries(60, apptest.ClientA, hangs))
	w.eventually("it hangs", func() bool { return r.of(r.sending, hangs) == 1 })
	wait, _ := w.handleAll(w.deliveries(60, apptest.ClientA, healthy))
	wait()
	require.Equal(t, []int{60, 0}, []int{r.of(r.answered, healthy), r.of(r.answered, hangs)})
	require.Equal(t, 1, r.of(r.most, hangs))
	require.LessOrEqual(t, r.of(r.most, healthy), 2, "an endpoint gets a fifth of ten sends")
	require.LessOrEqual(t, w.count("deliveries WHERE claimed_until IS NOT NULL"), unknownRoom, "few claims until the endpoint responds")
	quit()
}

// Storage counts failures of webhooks only, so the worker remembers the failures of callbacks.
func TestFailingEndpointGetsOneDeliveryAtATime(t *testing.T) {
	arrived, status := make(chan struct{}), make(chan int)
	w := newWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
		arrived <- struct{}{}
		return answers(<-status)(ctx, p)
	})
	tasks := w.deliveries(7, apptest.ClientA, w.webhook(apptest.ClientA))
	ends := make(chan error)
	begin := func() {
		go func(task job.DeliveryTask) { ends <- w.handle(task) }(tasks[0])
		tasks = tasks[1:]
		<-arrived
	}
	end := func(s int) error {
		status <- s
		return <-ends
	}
	w.exec(`UPDATE webhooks SET consecutive_failures = 3, failing_since = now()`)
	begin()
	require.IsType(t, &job.TaskEarly{}, w.handle(tasks[0]))
	require.NoError(t, end(200))
	begin()
	begin() // the endpoint has responded, so it can get two sends at once
	require.NoError(t, end(200))
	require.IsType(t, &job.TaskFailed{}, end(500))
	w.exec(`UPDATE webhooks SET consecutive_failures = 0, failing_since = NULL`)
	begin()
	require.IsType(t, &job.TaskEarly{}, w.handle(tasks[0]), "the worker remembers the failure")
	require.NoError(t, end(200))
}

func TestBacklogDoesNotDelayOtherClients(t *testing.T) {
	r := newReceivers(func(p job.ClaimedDelivery) bool { return p.ClientID == apptest.ClientA })
	w := newWorld(t, r.send)
	var tasks []job.DeliveryTask
	for range 10 {
		tasks = append(tasks, w.deliveries(6, apptest.ClientA, w.webhook(apptest.ClientA))...)
	}
	_, quit := w.handleAll(tasks)
	w.eventually("claims are used up", func() bool { return w.count("deliveries WHERE claimed_until IS NOT NULL") == claimShare*10/2 })
	healthy := w.webhook(apptest.ClientB)
	wait, _ := w.handleAll(w.deliveries(20, apptest.ClientB, healthy))
	wait()
	require.Equal(t, 20, r.of(r.answered, healthy))
	require.Equal(t, 5.0, w.Metric(w.Metrics.Sends), "a client gets half of ten sends")
	require.LessOrEqual(t, w.count("deliveries WHERE claimed_until IS NOT NULL"), claimShare*10/2, "claimed deliveries are limited")
	quit()
}

func TestDeferredTasksKeepEndpointBusy(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		const tasks, sends, took = 1500, 2, 20 * time.Millisecond
		a := newAdmission(HandlersOf(10), sends, telemetry.In(prometheus.NewRegistry()).Gauge("x", "y"))
		slots := make(chan struct{}, sends)
		var done, handled atomic.Int32
		began := time.Now()
		var all sync.WaitGroup
		for range tasks {
			all.Go(func() {
				for {
					handled.Add(1)
					e, busy := a.enter(job.DeliveryTask{ID: app.NewID()})
					if busy > 0 { // asynq hands out a postponed task again at a whole second
						time.Sleep(time.Until(time.Now().Add(busy).Truncate(time.Second)) + rand.N(time.Millisecond))
						continue
					}
					began := time.Now()
					slots <- struct{}{}
					time.Sleep(took)
					<-slots
					a.setHealth(e, answering)
					a.leave(e, time.Since(began))
					done.Add(1)
					return
				}
			})
		}
		all.Wait()
		require.EqualValues(t, tasks, done.Load())
		require.Less(t, time.Since(began), 2*tasks*took/sends+10*time.Second)
		require.Less(t, handled.Load(), int32(5*tasks))
	})
}

func TestWebhooksAtOneOriginShareItsLimit(t *testing.T) {
	t.Parallel()
	s, never := newSlots(10, 2), make(chan struct{})
	given := make(chan struct{})
	close(given)
	var releases []func()
	taken := func(client job.ID, url string) bool {
		release := s.acquire(receiverOf(job.ClaimedDelivery{Delivery: job.Delivery{ClientID: client}, Target: job.Target{URL: url}}), never)
		releases = append(releases, release)
		return release != nil
	}
	for _, client := range []job.ID{apptest.ClientA, apptest.ClientB} {
		require.True(t, taken(client, "http://one.example/a"))
		require.True(t, taken(client, "http://ONE.example:80/b"))
		at := receiverOf(job.ClaimedDelivery{Delivery: job.Delivery{ClientID: client}, Target: job.Target{URL: "HTTP://one.example/?c"}})
		require.Nil(t, s.acquire(at, given))
		require.True(t, taken(client, "http://one.example:81/"))
	}
	for _, release := range releases {
		release()
	}
	require.Empty(t, s.receivers)
}

func TestLargeAnswersCount(t *testing.T) {
	const room = 2
	large := strings.Repeat("x", job.MaxStoredBody)
	var used atomic.Int64
	w := newWorld(t, func(context.Context, job.ClaimedDelivery) job.Sent {
		return job.Sent{Attempt: job.DeliveryAttempt{StartedAt: time.Now(), Status: 200, Body: []byte(large)}}
	}, func(c *WorkerConfig) {
		c.Storage = func(_ context.Context, _ job.ID, units int) job.Allowance {
			return job.Allowance{OK: used.Add(int64(units)) <= room}
		}
	})
	kept := 0
	for range 5 {
		task := w.delivery()
		require.NoError(t, w.handle(task))
		if _, attempts := w.read(task); !attempts[0].Truncated {
			require.Len(t, attempts[0].Body, len(large))
			kept++
		}
	}
	require.Equal(t, room, kept)
}

func TestDeliveriesOverTheRateWait(t *testing.T) {
	var left, asked atomic.Int64
	left.Store(5)
	w := newWorld(t, answers(200), func(c *WorkerConfig) {
		c.Rate = func(_ context.Context, client job.ID) job.Allowance {
			asked.Add(1)
			if client == apptest.ClientB || left.Add(-1) >= 0 {
				return job.Allowance{OK: true}
			}
			return job.Allowance{RetryAfter: time.Hour}
		}
	})
	tasks := w.deliveries(17, apptest.ClientA, w.webhook(apptest.ClientA))
	for i, task := range tasks {
		err := w.handle(task)
		if i < 5 {
			require.NoError(t, err)
			continue
		}
		var early *job.TaskEarly
		require.ErrorAs(t, err, &early)
		require.GreaterOrEqual(t, early.Wait, minBusy)
		w.requireUntouched(task)
	}
	require.EqualValues(t, 6, asked.Load(), "no claims while the client rests")
	require.NoError(t, w.handle(w.deliveries(1, apptest.ClientB, w.webhook(apptest.ClientB))[0]))

	left.Store(12)
	w.worker.admission.update(func() { w.worker.admission.clients[apptest.ClientA].rest = time.Time{} })
	wait, _ := w.handleAll(tasks[5:])
	wait()
	require.Equal(t, 18, w.count("deliveries WHERE state = 'DELIVERED' AND attempts = 1"))
}

func TestChallengesPerClientAreLimited(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var busy, most atomic.Int32
		h := NewWebhooks(WebhooksDeps{Challenge: func(ctx context.Context, url string) string {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			if strings.Contains(url, "hangs") && !app.Sleep(ctx, 6*time.Second) {
				return "It said nothing."
			}
			return ""
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		const clients = 20
		ends := make(chan error, clients)
		for range clients {
			go func() { ends <- h.Prove(ctx, apptest.ClientA, "https://hangs.example/") }()
		}
		apptest.Pass(time.Second)
		require.EqualValues(t, clientProofsAtOnce, most.Load())
		began := time.Now()
		require.NoError(t, h.Prove(t.Context(), apptest.ClientB, "https://receiver.example/"))
		require.Zero(t, time.Since(began))
		ended := map[string]int{}
		for range clients {
			ended[fmt.Sprint(<-ends)]++
		}
		require.Equal(t, map[string]int{"<nil>": 2, context.DeadlineExceeded.Error(): 2, errManyProofs.Error(): clients - 4}, ended)
	})
}
