package delivery

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// worldDelivery is everything around the delivery worker.
type worldDelivery struct {
	*apptest.World
	Store *fakeStore
	Queue *fakeQueue
}

func newWorldDelivery(t testing.TB) *worldDelivery {
	w := apptest.NewWorld(t)
	return &worldDelivery{w, newFakeStore(w.Store), &fakeQueue{Queue: w.Queue, waiting: map[job.ID]job.Delivery{}}}
}

// bubble runs a test in a world of its own.
func bubble(t *testing.T, f func(t *testing.T, w *worldDelivery)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newWorldDelivery(t)) })
}

// subscribe stores a webhook as another process would.
func (w *worldDelivery) subscribe(client job.ID) *webhookRow {
	r := &webhookRow{Webhook: job.Webhook{ID: app.NewID(), ClientID: client}}
	w.Store.Update(func() { w.Store.webhooks[r.ID] = r })
	return r
}

// lead repairs deliveries until the test ends, as the leader of the maintenance
// does.
func (w *worldDelivery) lead() {
	relay := NewRelay(w.Store, w.Queue, w.Metrics, w.Logger)
	repeat := func(interval time.Duration, round func(context.Context, func() bool) error) {
		w.Background(func(ctx context.Context) {
			for app.Sleep(ctx, interval) {
				if err := round(ctx, steadyLead); err != nil && ctx.Err() == nil {
					w.Metrics.MaintenanceErrors.WithLabelValues("deliveries").Inc()
				}
			}
		})
	}
	repeat(500*time.Millisecond, relay.Round)
	repeat(leadOrphanInterval, relay.FailOrphans)
}

// leadOrphanInterval is that of the leader's look for orphaned deliveries.
const leadOrphanInterval = 3 * time.Second

func steadyLead() bool { return true }

// fakeStore adds deliveries and webhooks to the shared store.
type fakeStore struct {
	*apptest.Store
	WebhookReader
	deliveries []*deliveryRow
	webhooks   map[job.ID]*webhookRow
	short      func(n int) int // how many of n due deliveries a claim gives
}

func newFakeStore(s *apptest.Store) *fakeStore {
	return &fakeStore{Store: s, webhooks: map[job.ID]*webhookRow{}}
}

type deliveryRow struct {
	job.Delivery
	Fence       int
	Traceparent string
	Results     []job.DeliveryResult // that were accepted
}

// endpointOf is the state of an endpoint; the zero one is a callback's.
func (s *fakeStore) endpointOf(id job.ID) *webhookRow {
	if s.webhooks[id] == nil {
		s.webhooks[id] = &webhookRow{}
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

func (s *fakeStore) DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error) {
	return apptest.Call(ctx, s.Store, "DueEndpoints", func() (endpoints []job.ID, err error) {
		for _, r := range s.deliveries {
			if r.ClientID == client && r.due(0) && !slices.Contains(endpoints, r.Endpoint) {
				endpoints = append(endpoints, r.Endpoint)
			}
		}
		return endpoints, nil
	})
}

func (s *fakeStore) ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (job.DeliveryClaim, error) {
	return apptest.Call(ctx, s.Store, "ClaimDeliveries", func() (c job.DeliveryClaim, err error) {
		var due []*deliveryRow
		for _, r := range s.deliveries {
			switch {
			case r.ClientID != client || r.Endpoint != endpoint || s.endpointOf(endpoint).Disabled != nil:
			case r.due(0):
				due = append(due, r)
			case r.due(-time.Second) && (c.Next == 0 || time.Until(*r.NextAttemptAt) < c.Next):
				c.Next = time.Until(*r.NextAttemptAt)
			}
		}
		slices.SortStableFunc(due, func(a, b *deliveryRow) int {
			return cmp.Or(a.NextAttemptAt.Compare(*b.NextAttemptAt), bytes.Compare(a.JobID[:], b.JobID[:]), cmp.Compare(a.Seq, b.Seq))
		})
		some := min(n, len(due))
		if s.short != nil {
			some = s.short(some)
		}
		c.More = some == n || some < len(due)
		for _, r := range due[:some] {
			until := time.Now().Add(hold)
			r.ClaimedUntil = &until
			r.Fence++
			url := cmp.Or(r.URL, "https://"+endpoint.String()+".receiver.example/secret?token=1")
			target := job.Target{URL: url, Failures: s.endpointOf(endpoint).Failures}
			c.Deliveries = append(c.Deliveries, job.ClaimedDelivery{
				Delivery: r.Delivery, Fence: r.Fence, TraceParent: r.Traceparent, Target: target,
			})
		}
		return c, nil
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
		return job.Recorded{Number: r.Attempts, NextAttemptAt: r.NextAttemptAt, Disabled: d.Disable}, nil
	})
}

func (s *fakeStore) ReleaseDeliveries(ctx context.Context, deliveries []job.ClaimedDelivery) error {
	return apptest.Do(ctx, s.Store, "ReleaseDeliveries", func() error {
		for _, p := range deliveries {
			if r := s.claimedRow(p.Delivery.ID, p.Fence); r != nil {
				r.ClaimedUntil = nil
			}
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

func (s *fakeStore) FailOrphans(ctx context.Context, _, limit int) (int, error) {
	return apptest.Call(ctx, s.Store, "FailOrphans", func() (n int, err error) {
		for _, r := range s.deliveries {
			if n < limit && r.State == job.DeliveryPending && s.endpointOf(r.Endpoint).Disabled != nil {
				r.State, r.LastError = job.DeliveryFailed, job.SendDisabled
				n++
			}
		}
		return n, nil
	})
}
