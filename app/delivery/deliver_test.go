package delivery

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestDelivering(t *testing.T) {
	w := newWorld(t, answers(200))
	hook := w.webhook(apptest.ClientA, job.EventCreated)
	id, task := w.ofJob(func(j *job.Job) { j.TraceParent = w.Traceparent() })
	require.NoError(t, w.handle(task))
	d, attempts := w.read(task)
	require.Equal(t, []any{job.DeliveryDelivered, 1, 200}, []any{d.State, len(attempts), attempts[0].Status})
	require.ErrorIs(t, w.handle(task), job.ErrTaskStale, "the delivery is no longer due")

	lines := w.Log.Lines(t, map[string]any{"action": "deliver"})
	require.Len(t, lines, 1)
	for name, want := range map[string]any{
		"level": "INFO", "delivery_id": task.ID.String(), "webhook_id": hook.String(), "client_id": apptest.ClientA.String(),
		"job_id": id.String(), "event_name": "job.created", "attempt": 1.0, "status": 200.0, "duration_ms": 30.0,
		"next_state": "DELIVERED",
	} {
		require.Equal(t, want, lines[0][name], name)
	}
	require.NotContains(t, w.Log.String(), "secret")
	require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("job.created", "delivered")))
	require.Positive(t, w.Sum("webhook_latency_seconds"))
	require.Zero(t, w.Metric(w.Metrics.Sends)+w.Metric(w.Metrics.Endpoints))
}

func TestDeliveringToReceiversThatAreGone(t *testing.T) {
	w := newWorld(t, answers(410))
	_, task := w.ofJob(func(j *job.Job) { j.Callback = "https://user:password@receiver.example:8443/secret?token=secret" })
	require.Equal(t, &job.TaskFailed{Text: "GONE: " + job.SendGone.Text()}, w.handle(task))
	lines := w.Log.Lines(t, map[string]any{"action": "deliver", "error_code": "GONE"})
	require.Len(t, lines, 1)
	require.Equal(t, "receiver.example:8443", lines[0]["callback_host"])
	require.NotContains(t, lines[0], "webhook_id")
	require.NotContains(t, w.Log.String(), "secret")
	require.Equal(t, 1, w.count("deliveries WHERE state = 'FAILED'"))
	require.Empty(t, w.Log.Lines(t, map[string]any{"msg": "webhook disabled"}))

	task = w.delivery()
	w.queue.Notifications()
	require.Error(t, w.handle(task))
	require.Equal(t, job.DisabledGone, apptest.Must(w.store.Webhook(t.Context(), apptest.ClientA, task.Endpoint))(t).Disabled.Reason)
	require.Equal(t, 1.0, w.Metric(w.Metrics.WebhooksDisabled.WithLabelValues("GONE")))
	require.Len(t, w.Log.Lines(t, map[string]any{"msg": "webhook disabled", "reason": "GONE", "webhook_id": task.Endpoint.String()}), 1)
	require.Equal(t, []job.Notification{{ClientID: apptest.ClientA}}, w.queue.Notifications(), "disabling is an event")
}

func TestFailuresAreRetriedUntilTheLimit(t *testing.T) {
	w := newWorld(t, answers(500))
	task := w.delivery()
	text := "HTTP_5XX: " + job.SendServerError.Text()
	for try := range testPolicy.MaxRetries {
		var end *job.TaskFailed
		require.ErrorAs(t, w.handle(task), &end)
		require.Equal(t, text, end.Text)
		ceiling := testPolicy.Backoff.Ceiling(try + 1)
		require.GreaterOrEqual(t, end.Again, ceiling/2)
		require.LessOrEqual(t, end.Again, ceiling)
		require.IsType(t, &job.TaskEarly{}, w.handle(task), "no attempt before the backoff has passed")
		w.exec(`UPDATE deliveries SET next_attempt_at = now()`)
	}
	require.Equal(t, &job.TaskFailed{Text: text}, w.handle(task), "the task is archived")
	d, attempts := w.read(task)
	require.Equal(t, job.DeliveryFailed, d.State)
	require.Len(t, attempts, 1+testPolicy.MaxRetries)
	require.Equal(t, 2.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("webhook.test", "retried")))
	require.Equal(t, 1.0, w.Metric(w.Metrics.Deliveries.WithLabelValues("webhook.test", "failed")))
	require.Equal(t, 3.0, w.Metric(w.Metrics.DeliveryFailures.WithLabelValues("HTTP_5XX", "5xx")))
	require.Zero(t, w.Sum("webhook_latency_seconds"))
}

func TestPanicWhileSendingIsAFailedAttempt(t *testing.T) {
	w := newWorld(t, func(context.Context, job.ClaimedDelivery) job.Sent { panic("boom") })
	task := w.delivery()
	require.Error(t, w.handle(task))
	d, attempts := w.read(task)
	require.Equal(t, []any{job.DeliveryPending, job.SendInternal}, []any{d.State, attempts[0].Error})
	require.Zero(t, w.Metric(w.Metrics.Sends))
	lines := w.Log.Lines(t, map[string]any{"level": "ERROR"})
	require.Len(t, lines, 1)
	require.True(t, strings.HasPrefix(lines[0]["error_message"].(string), "panic: boom"))
}

func TestNoSendOutlastsItsClaim(t *testing.T) {
	var left time.Duration
	w := newWorld(t, func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return answer("", 200)
	})
	require.NoError(t, w.handle(w.delivery()))
	require.LessOrEqual(t, left, testTimeout+sendGrace)
	require.Positive(t, left)
}

func TestRecordingIsRepeated(t *testing.T) {
	w := newWorld(t, answers(200))
	task := w.delivery()
	w.exec(`CREATE SEQUENCE tries`)
	w.exec(`CREATE FUNCTION refuse_two() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN IF nextval($$tries$$) <= 2 THEN RAISE EXCEPTION $$refused by the test$$; END IF; RETURN NEW; END'`)
	w.exec(`CREATE TRIGGER two BEFORE INSERT ON delivery_attempts FOR EACH ROW EXECUTE FUNCTION refuse_two()`)
	require.NoError(t, w.handle(task))
	_, attempts := w.read(task)
	require.Len(t, attempts, 1)
	require.Equal(t, "an answer", string(attempts[0].Body))

	task = w.delivery()
	w.exec(`ALTER TABLE delivery_attempts ADD CONSTRAINT without_body CHECK (response_body IS NULL) NOT VALID`)
	require.NoError(t, w.handle(task))
	d, attempts := w.read(task)
	require.Equal(t, job.DeliveryDelivered, d.State, "recorded without the response that storage refuses")
	require.Empty(t, attempts[0].Body)
	w.exec(`ALTER TABLE delivery_attempts DROP CONSTRAINT without_body`)

	task = w.delivery()
	repotest.Refuse(t, w.url, "INSERT ON delivery_attempts")
	require.Error(t, w.handle(task))
	d, _ = w.read(task)
	require.NotNil(t, d.ClaimedUntil, "the claim stays until it expires")
	require.Len(t, w.Log.Lines(t, map[string]any{"msg": "cannot record a delivery attempt"}), 1)
}

func TestLateResultIsIgnored(t *testing.T) {
	var w *world
	w = newWorld(t, func(context.Context, job.ClaimedDelivery) job.Sent {
		w.exec(`UPDATE deliveries SET dispatch = dispatch + 1`)
		return answer("", 200)
	})
	task := w.delivery()
	require.ErrorIs(t, w.handle(task), job.ErrTaskStale)
	_, attempts := w.read(task)
	require.Empty(t, attempts)
	require.Equal(t, 1.0, w.Metric(w.Metrics.FencedWrites.WithLabelValues("deliver")))
	require.Zero(t, w.Metric(w.Metrics.Deliveries.WithLabelValues("webhook.test", "delivered")))
	require.Len(t, w.Log.Lines(t, map[string]any{"msg": "a write without a claim changed nothing", "fence": 1.0}), 1)
}

func (w *world) claim(task job.DeliveryTask) claimed {
	e, busy := w.worker.admission.enter(task)
	require.Zero(w.T, busy)
	w.T.Cleanup(func() { w.worker.admission.leave(e, 0) })
	return apptest.Must(w.worker.claim(e, task))(w.T)
}

func TestClaimThatEndsTooSoonIsReleased(t *testing.T) {
	w := newWorld(t, answers(200))
	task := w.delivery()
	c := w.claim(task)
	c.until = time.Now().Add(testTimeout + sendMargin - time.Millisecond)
	sent, err := w.worker.deliver(c)
	require.False(t, sent)
	require.Equal(t, &job.TaskEarly{}, err)
	w.requireUntouched(task)
	require.NoError(t, w.handle(task))
}

func TestStopping(t *testing.T) {
	for name, cutOff := range map[string]bool{"waits for sends": false, "cuts off what takes too long": true} {
		t.Run(name, func(t *testing.T) {
			r := newReceivers(func(job.ClaimedDelivery) bool { return true })
			w := newWorld(t, r.send)
			hook := w.webhook(apptest.ClientA)
			tasks := w.deliveries(3, apptest.ClientA, hook)
			unused := w.claim(w.delivery())
			ends := make(chan error)
			go func() { ends <- w.handle(tasks[0]) }()
			w.eventually("it is sent", func() bool { return r.of(r.sending, hook) == 1 })
			go func() { ends <- w.handle(tasks[1]) }()
			w.eventually("it is claimed", func() bool { return w.count("deliveries WHERE claimed_until IS NOT NULL") == 3 })
			stop, stopped := context.Background(), make(chan struct{})
			if cutOff {
				stop = ended()
			}
			go func() { w.worker.Stop(stop); close(stopped) }()
			if !cutOff {
				require.IsType(t, &job.TaskEarly{}, <-ends, "the waiting delivery is released")
				close(r.goOn)
				require.NoError(t, <-ends)
				<-stopped
				require.Equal(t, 1, w.count("deliveries WHERE state = 'DELIVERED'"))
			} else {
				for range 2 {
					require.IsType(t, &job.TaskEarly{}, <-ends)
				}
				<-stopped
				w.requireUntouched(tasks[0])
			}
			w.requireUntouched(tasks[1])
			require.Equal(t, &job.TaskEarly{Wait: minBusy}, w.handle(tasks[2]), "no more tasks are accepted")
			sent, _, err := w.worker.attempt(unused)
			require.Equal(t, &job.TaskEarly{}, err, "a late claim is released")
			require.Empty(t, sent)
		})
	}
}

func TestStoppingWhileEverythingHangs(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		base := apptest.NewWorld(t)
		w := NewWorker(WorkerConfig{}, nil, nil, base.Queue, base.Metrics, base.Logger)
		require.True(t, w.begin())
		began := time.Now()
		w.Stop(ended())
		require.LessOrEqual(t, time.Since(began), cutGrace)
		require.Error(t, w.storing.Err())
		w.running.Done()
	})
}
