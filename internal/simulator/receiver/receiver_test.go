package receiver_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/testkit"
)

type testReceiver struct {
	*receiver.Receiver
	t       *testing.T
	history memory
}

type memory struct {
	mu   sync.Mutex
	list []history.Fact
}

func (m *memory) Add(f history.Fact) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, f)
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.list)
}

func start(t *testing.T, o receiver.Options) *testReceiver {
	t.Helper()
	b := &testReceiver{t: t}
	var err error
	o.History = &b.history
	if o.Names == nil {
		o.Names = map[string][]receiver.Answer{"hook": nil, "callback": nil}
	}
	if o.Keys == nil {
		o.Keys = publishedKeys
	}
	b.Receiver, err = receiver.Listen("127.0.0.1:0", "", o)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	b.register(0, "webhook-1", secretText)
	return b
}

func (b *testReceiver) register(tenant int, id, secret string) {
	b.t.Helper()
	require.NoError(b.t, b.Register(tenant, "hook", func(string) (string, string, error) { return id, secret, nil }))
}

func (b *testReceiver) facts() []history.Fact {
	b.t.Helper()
	b.Close()
	return b.history.list
}

func TestGoodMessagesAreReceived(t *testing.T) {
	t.Parallel()
	var delivered atomic.Int32
	b := start(t, receiver.Options{
		Delivered: func(ok bool) { require.True(t, ok); delivered.Add(1) },
	})
	began := time.Now()
	bound := of(b.URL(0, "hook"), "d-1", "job-1")
	bound.correlation = "run.17"
	callback := of(b.URL(0, "callback"), "d-2", "job-1")
	callback.secret = ""
	batch := of(b.URL(0, "hook"), "d-4", "batch-1")
	batch.event, batch.subject = "batch.completed", "batches/batch-1"
	test := of(b.URL(0, "hook"), "d-5", "")
	test.event, test.subject, test.body = "webhook.test", "webhooks/webhook-1", []byte(`{"webhookId":"webhook-1"}`)
	emitted := of(b.URL(0, "hook"), "d-6", "job-1")
	emitted.event, emitted.body = "event.emitted",
		[]byte(`{"jobId":"job-1","jobStatus":"PROCESSING","emitted":{"name":"simulated","data":17}}`)
	for i, d := range []delivery{bound, callback, batch, test, emitted} {
		status, err := d.send(t.Context(), t)
		require.NoError(t, err)
		require.Equal(t, http.StatusNoContent, status, d.id)
		require.EqualValues(t, i+1, b.history.count(), "recorded before the response")
	}
	facts := map[string]history.Fact{}
	for _, f := range b.facts() {
		require.Equal(t, history.Received, f.Kind, f.Note)
		require.WithinRange(t, f.At, began.Add(-time.Second), time.Now())
		facts[f.Delivery.ID] = f
	}
	require.Len(t, facts, 5)
	require.EqualValues(t, 5, delivered.Load())
	f := facts["d-1"]
	f.At = time.Time{}
	require.Equal(t, history.Fact{
		Kind: history.Received, Ticket: 17, Job: "job-1",
		Delivery: &history.Delivery{
			ID: "d-1", Webhook: "webhook-1", Receiver: "hook", URL: bound.url, EventID: "event-of-d-1", EventName: "job.succeeded",
			Seq: 5, Status: 204, Body: facts["d-1"].Delivery.Body, JobStatus: "COMPLETED",
		},
	}, f)
	require.Len(t, f.Delivery.Body, 64, "SHA-256 in hexadecimal")
	require.Empty(t, facts["d-2"].Delivery.Webhook)
	require.Empty(t, facts["d-4"].Job, "of a batch")
	require.Equal(t, "webhook.test", facts["d-5"].Delivery.EventName)
	require.Equal(t, "PROCESSING", facts["d-6"].Delivery.JobStatus)
	require.Equal(t, "simulated 17", facts["d-6"].Delivery.Emitted)
}

func TestForbiddenMessages(t *testing.T) {
	t.Parallel()
	_, anotherKey, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*delivery)
		note   string
	}{
		"another secret": {change: func(d *delivery) { d.secret = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXI=" },
			note: "without a valid signature by the webhook's secret: "},
		"another key": {change: func(d *delivery) { d.key = anotherKey }, note: "without a valid signature by a published key: "},
		"signature for another URL": {change: func(d *delivery) { d.signedURL = "http://receiver.test/0/hook" },
			note: "without a valid signature by a published key: "},
		"body of another job": {change: func(d *delivery) { d.jobID = "job-2" },
			note: `a message of job "job-2" with the subject "jobs/job-1"`},
		"subject of another job": {change: func(d *delivery) { d.subject = "jobs/job-2" },
			note: `a message of job "job-1" with the subject "jobs/job-2"`},
		"body of no job": {change: func(d *delivery) { d.body = []byte(`{}`) },
			note: `a message of job none with the subject "jobs/job-1"`},
		"not JSON":            {change: func(d *delivery) { d.body = []byte(`job-1`) }, note: "a message that cannot be read"},
		"too long":            {change: func(d *delivery) { d.body = make([]byte, 4<<20+1) }, note: "a message of more than 4 MiB"},
		"a very long subject": {change: func(d *delivery) { d.subject = "jobs/" + strings.Repeat("x", 10_000) }, note: "with the subject"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, receiver.Options{
				Delivered: func(bool) { t.Error("a forbidden message counts as a delivery") },
			})
			b.register(1, "webhook-2", "whsec_YW5vdGhlci1hbm90aGVyLWFub3RoZXI=")
			d := of(b.URL(0, "hook"), "d-1", "job-1")
			c.change(&d)
			status, err := d.send(t.Context(), t)
			require.NoError(t, err)
			require.Equal(t, http.StatusForbidden, status)
			facts := b.facts()
			require.Len(t, facts, 1)
			require.Equal(t, history.Forbidden, facts[0].Kind)
			require.Contains(t, facts[0].Note, c.note)
			require.Less(t, len(facts[0].Note)+len(facts[0].Job), 1000)
			require.Equal(t, d.url, facts[0].Delivery.URL)
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   receiver.Answer
		status   int   // 0: the sender gets no response
		err      error // expected error of the sender if status is 0
		giveUp   func(b *testReceiver) bool
		note     string
		accepted bool
	}{
		"status": {answer: receiver.Answer{Status: 503}, status: 503},
		"late":   {answer: receiver.Answer{Status: 200, After: 50 * time.Millisecond}, status: 200, accepted: true},
		"reset":  {answer: receiver.Answer{Reset: true}, err: syscall.ECONNRESET},
		"hang": {answer: receiver.Answer{Hang: true}, err: context.Canceled,
			giveUp: func(b *testReceiver) bool { return b.history.count() > 0 }},
		"after the sender gives up": {answer: receiver.Answer{Status: 200, After: time.Hour}, err: context.Canceled,
			giveUp: func(b *testReceiver) bool { return b.Arrived() > 0 }, note: "the sender gave up before it got a response"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan bool, 1)
			b := start(t, receiver.Options{
				Names:     map[string][]receiver.Answer{"hook": {c.answer}},
				Delivered: func(ok bool) { ended <- ok },
			})
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			if c.giveUp != nil {
				go func() {
					for ctx.Err() == nil && !c.giveUp(b) {
						time.Sleep(time.Millisecond)
					}
					giveUp()
				}()
			}
			began := time.Now()
			status, err := of(b.URL(0, "hook"), "d-1", "job-1").send(ctx, t)
			require.Equal(t, c.status, status, err)
			require.ErrorIs(t, err, c.err)
			require.True(t, c.status != 200 || time.Since(began) >= c.answer.After)
			require.Equal(t, c.accepted, <-ended)
			facts := b.facts()
			require.Len(t, facts, 1)
			require.Equal(t, history.Received, facts[0].Kind)
			require.Equal(t, c.status, facts[0].Delivery.Status)
			require.Equal(t, c.note, facts[0].Note)
		})
	}
}

func TestCloseEndsHeldRequests(t *testing.T) {
	t.Parallel()
	var delivered atomic.Int32
	b := start(t, receiver.Options{
		Names: map[string][]receiver.Answer{"hook": {{Hang: true}}, "callback": {{Status: 200, After: time.Hour}}},
		Delivered: func(bool) {
			time.Sleep(50 * time.Millisecond) // makes the test fail if Close does not wait for this call
			delivered.Add(1)
		},
	})
	ended := make(chan error, 2)
	late := of(b.URL(0, "callback"), "d-2", "job-1")
	for _, d := range []delivery{of(b.URL(0, "hook"), "d-1", "job-1"), late} {
		go func() {
			_, err := d.send(t.Context(), t)
			ended <- err
		}()
	}
	// Only the message to "hook" is in the history. The message to "callback" is recorded when its delayed response is due.
	testkit.Eventually(t, "both are held", func() bool { return b.Arrived() == 2 && b.history.count() == 1 })
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(b.Close)
	}
	closers.Wait()
	require.EqualValues(t, 2, delivered.Load())
	require.Error(t, <-ended)
	require.Error(t, <-ended)
	facts := b.facts()
	require.Len(t, facts, 2)
	for _, f := range facts {
		require.Zero(t, f.Delivery.Status)
		require.Equal(t, f.Delivery.ID == "d-2", f.Note == "the receiver was closed before it responded", f.Note)
	}
	_, err := of(b.URL(0, "hook"), "d-3", "job-1").send(t.Context(), t)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestUnavailableKeys(t *testing.T) {
	t.Parallel()
	var unavailable atomic.Bool
	unavailable.Store(true)
	b := start(t, receiver.Options{Keys: func(id string) (ed25519.PublicKey, error) {
		if unavailable.Load() {
			return nil, errors.New("the service is unavailable")
		}
		return publishedKeys(id)
	}})
	d := of(b.URL(0, "hook"), "d-1", "job-1")
	status, err := d.send(t.Context(), t)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	unavailable.Store(false)
	status, err = d.send(t.Context(), t)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, status)
	facts := b.facts()
	require.Len(t, facts, 2)
	require.Equal(t, 503, facts[0].Delivery.Status)
	require.Contains(t, facts[0].Note, "the service is unavailable")
	require.Equal(t, history.Received, facts[0].Kind)
	require.Equal(t, 204, facts[1].Delivery.Status)
}
