package delivery

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

const testTimeout = 10 * time.Second

var (
	endpointA = job.ID{0xe, 0xa}
	endpointB = job.ID{0xe, 0xb}

	testDeliveryPolicy = job.DeliveryPolicy{MaxRetries: 8, Backoff: job.Backoff{Base: 5 * time.Second, Max: time.Minute}}
)

func (w *worldDelivery) stop(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	w.worker.Stop(ctx)
}

// handle passes the task of a delivery to the worker.
func (w *worldDelivery) handle(id job.ID) error {
	d := w.Store.delivery(id)
	return w.worker.Handle(context.Background(), taskOf(&d.Delivery))
}

// attempted stores a delivery and handles its task.
func (w *worldDelivery) attempted(change ...func(*deliveryRow)) job.ID {
	w.T.Helper()
	id := w.Store.deliver(apptest.ClientA, endpointA, change...)
	_ = w.handle(id)
	return id
}

// working hands the queue's tasks to the worker, makes those of deliveries that were there before, and leads the maintenance.
func (w *worldDelivery) working() {
	w.enqueue(w.Store.deliveries...)
	w.Background(func(ctx context.Context) { w.Queue.run(ctx, HandlersOf(10), w.worker.Handle) })
	w.Background(func(ctx context.Context) {
		for app.Sleep(ctx, 500*time.Millisecond) {
			_ = w.relay.Round(ctx, steadyLead)
		}
	})
}

func (w *worldDelivery) enqueue(rows ...*deliveryRow) {
	for _, r := range rows {
		w.Queue.EnqueueDelivery(taskOf(&r.Delivery))
	}
}

// delivers stores deliveries and makes their tasks.
func (w *worldDelivery) delivers(n int, client, endpoint job.ID) {
	before := len(w.Store.deliveries)
	w.Store.deliverMany(n, client, endpoint)
	w.enqueue(w.Store.deliveries[before:]...)
}

func steadyLead() bool { return true }

func TestDelivering(t *testing.T) {
	sending(t, answers(200, 30*time.Millisecond), func(t *testing.T, w *worldDelivery) {
		w.Store.traceparent = w.Traceparent()
		id := w.Store.deliver(apptest.ClientA, endpointA)
		apptest.Pass(20 * time.Millisecond)
		require.NoError(t, w.handle(id))
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryDelivered, d.State)
		require.Len(t, d.Results, 1)
		require.Equal(t, []any{1, 200}, []any{d.Results[0].Fence, d.Results[0].Sent.Attempt.Status})
		require.ErrorIs(t, w.handle(id), job.ErrTaskStale, "nothing is due")

		lines := w.Log.Lines(t, map[string]any{"action": "deliver"})
		require.Len(t, lines, 1)
		for name, want := range map[string]any{
			"level": "INFO", "delivery_id": id.String(), "webhook_id": endpointA.String(), "client_id": apptest.ClientA.String(),
			"job_id": d.JobID.String(), "event_name": "job.succeeded", "attempt": 1.0, "status": 200.0, "duration_ms": 30.0,
			"next_state": "DELIVERED",
		} {
			require.Equal(t, want, lines[0][name], name)
		}
		require.NotContains(t, w.Log.String(), "secret")
		require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "delivered")))
		require.InDelta(t, 0.03, w.Sum("webhook_send_seconds"), 1e-6)
		require.Equal(t, []string{w.Span("request").SpanContext.TraceID().String()}, w.Exemplars("webhook_send_seconds"))
		require.InDelta(t, 0.05, w.Sum("webhook_latency_seconds"), 1e-6)
		require.Zero(t, w.Metric(w.Metrics.Sends)+w.Metric(w.Metrics.Endpoints))

		w.sender.send = answers(410, 0)
		id = w.Store.deliver(apptest.ClientA, endpointB, toCallback)
		require.Equal(t, &job.TaskFailed{Text: "GONE: " + job.SendGone.Text()}, w.handle(id))
		lines = w.Log.Lines(t, map[string]any{"action": "deliver", "error_code": "GONE"})
		require.Len(t, lines, 1)
		require.Equal(t, "receiver.example:8443", lines[0]["callback_host"], "of a callback only the host is logged")
		require.NotContains(t, lines[0], "webhook_id")
		require.NotContains(t, w.Log.String(), "secret")
		require.Equal(t, job.DeliveryFailed, w.Store.delivery(id).State)
		require.Empty(t, w.Store.delivery(id).Results[0].Disable, "there is nothing to disable")
	})
}

func TestFailuresAreRetriedUntilTheLimit(t *testing.T) {
	sending(t, answers(500, 0), func(t *testing.T, w *worldDelivery) {
		id := w.Store.deliver(apptest.ClientA, endpointA)
		w.working()
		apptest.Pass(10 * time.Minute)
		d := w.Store.delivery(id)
		require.Equal(t, job.DeliveryFailed, d.State)
		require.Len(t, d.Results, 1+testDeliveryPolicy.MaxRetries)
		for i, r := range d.Results[:testDeliveryPolicy.MaxRetries] {
			require.Equal(t, job.DeliveryPending, r.State)
			ceiling := testDeliveryPolicy.Backoff.Ceiling(i + 1)
			require.GreaterOrEqual(t, r.Wait, ceiling/2, "%d", i)
			require.LessOrEqual(t, r.Wait, ceiling, "%d", i)
			late := d.Results[i+1].Sent.Attempt.StartedAt.Sub(r.Sent.Attempt.StartedAt) - r.Wait
			require.GreaterOrEqual(t, late, time.Duration(0), "never before its time")
			require.LessOrEqual(t, late, 60*time.Millisecond)
		}
		var end *job.TaskFailed
		require.ErrorAs(t, w.Queue.ended[id], &end)
		require.Equal(t, job.TaskFailed{Text: "HTTP_5XX: " + job.SendServerError.Text()}, *end, "the task is archived")
		require.Zero(t, w.Queue.waiting())
		require.Equal(t, 8.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "retried")))
		require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.succeeded", "failed")))
		require.Equal(t, 9.0, w.Metric(w.Metrics.DeliveryFailures.WithLabelValues("HTTP_5XX", "5xx")))
		require.Zero(t, w.Sum("webhook_latency_seconds"))
	})
}

func TestTheServerSaysWhyItDisabledAWebhook(t *testing.T) {
	sending(t, answers(410, 0), func(t *testing.T, w *worldDelivery) {
		id := w.attempted()
		require.Equal(t, job.DisabledGone, w.Store.delivery(id).Results[0].Disable)
		require.Equal(t, 1.0, w.Metric(w.Metrics.WebhooksDisabled.WithLabelValues("GONE")))
		require.Len(t, w.Log.Lines(t, map[string]any{"msg": "webhook disabled", "reason": "GONE", "webhook_id": endpointA.String()}), 1)
		require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.Queue.Notifications(), "the event of it")
	})
}

func TestSendingThatPanicsIsAFailedAttempt(t *testing.T) {
	sending(t, func(context.Context, job.ClaimedDelivery) job.Sent { panic("boom") }, func(t *testing.T, w *worldDelivery) {
		id := w.attempted()
		d := w.Store.delivery(id)
		require.Equal(t, job.SendInternal, d.Results[0].Sent.Attempt.Error)
		require.Equal(t, job.DeliveryPending, d.State)
		require.Zero(t, w.Metric(w.Metrics.Sends))
		lines := w.Log.Lines(t, map[string]any{"level": "ERROR"})
		require.Len(t, lines, 1)
		require.True(t, strings.HasPrefix(lines[0]["error_message"].(string), "panic: boom"))
	})
}

// A sender that does not keep its own time limit is cut off.
func TestNoSendOutlastsItsClaim(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldDelivery(t, func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
			began := time.Now()
			<-ctx.Done()
			return failedWith(began, job.SendTimeout, 0)
		})
		id := w.attempted()
		require.Equal(t, testTimeout+sendGrace, w.Store.delivery(id).Results[0].Sent.Attempt.Duration)
	})
}

// A task that comes a moment early waits for its delivery; one that comes much too early, or while storage is away, comes again.
func TestTasksThatComeTooEarly(t *testing.T) {
	sending(t, answers(200, 0), func(t *testing.T, w *worldDelivery) {
		dueIn := func(wait time.Duration) job.ID {
			return w.Store.deliver(apptest.ClientA, endpointA, func(r *deliveryRow) {
				at := time.Now().Add(wait)
				r.NextAttemptAt = &at
			})
		}
		began := time.Now()
		require.NoError(t, w.handle(dueIn(900*time.Millisecond)))
		require.Equal(t, 900*time.Millisecond, time.Since(began))
		require.Equal(t, &job.TaskEarly{Wait: time.Hour}, w.handle(dueIn(time.Hour)))
		w.Store.Hook("ClaimDelivery", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		id := dueIn(0)
		require.ErrorIs(t, w.handle(id), apptest.ErrStorage)
		require.NoError(t, w.handle(id))
	})
}
