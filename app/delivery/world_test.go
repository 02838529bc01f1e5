package delivery

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// worldDelivery is everything around the delivery worker, and the worker.
type worldDelivery struct {
	*apptest.World
	Store  *fakeStore
	Queue  *fakeQueue
	sender *fakeSender
	worker *Worker
	relay  *Relay
}

func newWorldDelivery(t *testing.T, send func(context.Context, job.ClaimedDelivery) job.Sent) *worldDelivery {
	base := apptest.NewWorld(t)
	w := &worldDelivery{World: base, Store: newFakeStore(base.Store), Queue: newFakeQueue(base.Queue), sender: newFakeSender(send)}
	w.worker = NewWorker(WorkerConfig{Concurrency: 10, Timeout: testTimeout, Policy: testDeliveryPolicy, Tracer: w.Tracer()},
		w.Store, w.sender, w.Queue, w.Metrics, w.Logger)
	t.Cleanup(func() { w.stop(time.Minute) })
	w.relay = NewRelay(w.Store, w.Queue, w.Metrics, w.Logger)
	return w
}

// sending runs a test in a world of its own, in which sends end as send says.
func sending(t *testing.T, send func(context.Context, job.ClaimedDelivery) job.Sent, f func(t *testing.T, w *worldDelivery)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldDelivery(t, send)) })
}

// fakeStore adds deliveries and webhooks to the shared store.
type fakeStore struct {
	*apptest.Store
	Reader
	deliveries  []*deliveryRow
	subscribers func() []job.EndpointKey
	traceparent string // of all deliveries
	webhooks    map[job.ID]*job.Webhook
}

func newFakeStore(s *apptest.Store) *fakeStore {
	return &fakeStore{Store: s, webhooks: map[job.ID]*job.Webhook{}}
}

type deliveryRow struct {
	job.Delivery
	Fence   int
	Results []job.DeliveryResult // that were accepted
}

// endpointOf is the state of an endpoint; the zero one is a callback's.
func (s *fakeStore) endpointOf(id job.ID) *job.Webhook {
	if s.webhooks[id] == nil {
		s.webhooks[id] = &job.Webhook{}
	}
	return s.webhooks[id]
}

// deliver stores a delivery that is due, and gives its id.
func (s *fakeStore) deliver(client, endpoint job.ID, change ...func(*deliveryRow)) job.ID {
	now := time.Now()
	r := &deliveryRow{Delivery: job.Delivery{
		ID: app.NewID(), ClientID: client, Endpoint: endpoint, WebhookID: endpoint, JobID: app.NewID(), Seq: 1, EventID: app.NewID(),
		EventName: job.EventSucceeded, CreatedAt: now, State: job.DeliveryPending, NextAttemptAt: &now,
	}}
	for _, f := range change {
		f(r)
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.deliveries = append(s.deliveries, r)
	return r.ID
}

// deliverMany stores n deliveries.
func (s *fakeStore) deliverMany(n int, client, endpoint job.ID) {
	for range n {
		s.deliver(client, endpoint)
	}
}

// delivery gives a copy of a row.
func (s *fakeStore) delivery(id job.ID) deliveryRow {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return *s.row(id)
}

func (s *fakeStore) row(id job.ID) *deliveryRow {
	for _, r := range s.deliveries {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// inState counts the deliveries in a state, and those of them that are claimed.
func (s *fakeStore) inState(state job.DeliveryState) (n, claimed int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.deliveries {
		if r.State == state {
			n++
			if r.ClaimedUntil != nil {
				claimed++
			}
		}
	}
	return n, claimed
}

func (r *deliveryRow) due(age time.Duration) bool {
	return r.State == job.DeliveryPending && r.ClaimedUntil == nil && !r.NextAttemptAt.After(time.Now().Add(-age))
}

func (s *fakeStore) ClaimDelivery(ctx context.Context, id job.ID, hold time.Duration) (
	claimed *job.ClaimedDelivery, wait time.Duration, err error,
) {
	err = apptest.Do(ctx, s.Store, "ClaimDelivery", func() error {
		r := s.row(id)
		if r == nil || r.State != job.DeliveryPending || r.ClaimedUntil != nil || s.endpointOf(r.Endpoint).Disabled != nil {
			return nil
		}
		if wait = time.Until(*r.NextAttemptAt); wait > 0 {
			return nil
		}
		wait = 0
		until := time.Now().Add(hold)
		r.ClaimedUntil = &until
		r.Fence++
		url := cmp.Or(r.URL, "https://"+r.Endpoint.String()+".receiver.example/secret?token=1")
		target := job.Target{URL: url, Failures: s.endpointOf(r.Endpoint).Failures}
		claimed = &job.ClaimedDelivery{Delivery: r.Delivery, Fence: r.Fence, TraceParent: s.traceparent, Target: target}
		return nil
	})
	if err != nil {
		claimed = nil
	}
	return claimed, wait, err
}

// DueDeliveries looks at all endpoints at once.
func (s *fakeStore) DueDeliveries(ctx context.Context, _ job.EndpointKey, _, perEndpoint, _ int, minAge, ahead time.Duration) (
	due []job.DeliveryTask, last job.EndpointKey, err error,
) {
	err = apptest.Do(ctx, s.Store, "DueDeliveries", func() error {
		of := map[job.ID]int{}
		for _, r := range s.deliveries {
			if of[r.Endpoint] < perEndpoint && r.due(-ahead) && (r.Attempts > 0 || r.due(minAge)) && s.endpointOf(r.Endpoint).Disabled == nil {
				of[r.Endpoint]++
				due = append(due, job.DeliveryTask{ID: r.ID, ClientID: r.ClientID, Endpoint: r.Endpoint, At: *r.NextAttemptAt})
			}
		}
		return nil
	})
	return due, last, err
}

// NewDeliveries finds those of jobs alone.
func (s *fakeStore) NewDeliveries(ctx context.Context, jobs, _ []job.ID) ([]job.DeliveryTask, error) {
	return apptest.Call(ctx, s.Store, "NewDeliveries", func() (found []job.DeliveryTask, err error) {
		for _, r := range s.deliveries {
			if slices.Contains(jobs, r.JobID) && r.Attempts == 0 && r.due(0) {
				found = append(found, taskOf(&r.Delivery))
			}
		}
		return found, nil
	})
}

// claimedRow gives the row that a claim still holds.
func (s *fakeStore) claimedRow(id job.ID, fence int) *deliveryRow {
	r := s.row(id)
	if r == nil || r.Fence != fence || r.ClaimedUntil == nil {
		return nil
	}
	return r
}

func (s *fakeStore) RecordDelivery(ctx context.Context, d job.DeliveryResult) (job.Recorded, error) {
	return apptest.Call(ctx, s.Store, "RecordDelivery", func() (job.Recorded, error) {
		r := s.claimedRow(d.DeliveryID, d.Fence)
		if r == nil {
			return job.Recorded{}, job.ErrStale
		}
		r.Results = append(r.Results, d)
		r.State, r.ClaimedUntil, r.NextAttemptAt = d.State, nil, nil
		r.Attempts++
		if d.State == job.DeliveryPending {
			at := time.Now().Add(d.Wait)
			r.NextAttemptAt = &at
		}
		e := s.endpointOf(r.Endpoint)
		if d.Sent.Attempt.Error != job.SendInternal { // which is no try
			r.Tries++
			e.Failures++
		}
		if d.Sent.Attempt.Error == "" {
			e.Failures = 0
		}
		if d.Disable != "" {
			e.Disabled = &job.Disabled{At: time.Now(), Reason: d.Disable}
		}
		r.LastStatus, r.LastError = d.Sent.Attempt.Status, d.Sent.Attempt.Error
		return job.Recorded{Number: r.Attempts, Disabled: d.Disable}, nil
	})
}

func (s *fakeStore) ReleaseDelivery(ctx context.Context, id job.ID, fence int) error {
	return apptest.Do(ctx, s.Store, "ReleaseDelivery", func() error {
		if r := s.claimedRow(id, fence); r != nil {
			r.ClaimedUntil = nil
		}
		return nil
	})
}

func (s *fakeStore) ReclaimDeliveries(ctx context.Context, limit int) (int, error) {
	return apptest.Call(ctx, s.Store, "ReclaimDeliveries", func() (n int, err error) {
		for _, r := range s.deliveries {
			if n < limit && r.ClaimedUntil != nil && r.ClaimedUntil.Before(time.Now()) {
				r.ClaimedUntil = nil
				n++
			}
		}
		return n, nil
	})
}

func (s *fakeStore) FailOrphans(ctx context.Context, _, limit int) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "FailOrphans", func() (failed []job.ID, err error) {
		for _, r := range s.deliveries {
			if len(failed) < limit && r.State == job.DeliveryPending && s.endpointOf(r.Endpoint).Disabled != nil {
				r.State, r.LastError = job.DeliveryFailed, job.SendDisabled
				failed = append(failed, r.ID)
			}
		}
		return failed, nil
	})
}
