package app

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The part of fakeStore that couriers and their relay see.

type parcelRow struct {
	job.Delivery
	fence       int
	traceparent string
	results     []job.DeliveryResult // that were accepted
}

// endpointOf is the state of an endpoint; the zero one is a callback's.
func (s *fakeStore) endpointOf(id job.ID) *webhookRow {
	if s.hooked[id] == nil {
		s.hooked[id] = &webhookRow{}
	}
	return s.hooked[id]
}

// deliver stores a delivery that is due, and gives its id.
func (s *fakeStore) deliver(client, endpoint job.ID, change ...func(*parcelRow)) job.ID {
	now := time.Now()
	r := &parcelRow{Delivery: job.Delivery{
		ID: newID(), ClientID: client, Endpoint: endpoint, WebhookID: endpoint, JobID: newID(), Seq: 1, EventID: newID(),
		EventName: job.EventSucceeded, CreatedAt: now, State: job.DeliveryPending, NextAttemptAt: &now,
	}}
	for _, f := range change {
		f(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parcels = append(s.parcels, r)
	return r.ID
}

// meddle changes what is stored, as another process would.
func (s *fakeStore) meddle(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// delivery gives a copy of a row.
func (s *fakeStore) delivery(id job.ID) parcelRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.parcel(id)
}

func (s *fakeStore) parcel(id job.ID) *parcelRow {
	for _, r := range s.parcels {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// inState counts the deliveries in a state, and those of them that are claimed.
func (s *fakeStore) inState(state job.DeliveryState) (n, claimed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.parcels {
		if r.State == state {
			n++
			if r.ClaimedUntil != nil {
				claimed++
			}
		}
	}
	return n, claimed
}

func (r *parcelRow) due(age time.Duration) bool {
	return r.State == job.DeliveryPending && r.ClaimedUntil == nil && !r.NextAttemptAt.After(time.Now().Add(-age))
}

func (s *fakeStore) DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error) {
	return call(ctx, s, "DueEndpoints", func() (endpoints []job.ID, err error) {
		for _, r := range s.parcels {
			if r.ClientID == client && r.due(0) && !slices.Contains(endpoints, r.Endpoint) {
				endpoints = append(endpoints, r.Endpoint)
			}
		}
		return endpoints, nil
	})
}

func (s *fakeStore) ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (parcels []job.ClaimedDelivery, more bool, err error) {
	parcels, err = call(ctx, s, "ClaimDeliveries", func() ([]job.ClaimedDelivery, error) {
		var due []*parcelRow
		for _, r := range s.parcels {
			if r.ClientID == client && r.Endpoint == endpoint && r.due(0) && s.endpointOf(endpoint).Disabled == nil {
				due = append(due, r)
			}
		}
		slices.SortStableFunc(due, func(a, b *parcelRow) int {
			return cmp.Or(a.NextAttemptAt.Compare(*b.NextAttemptAt), bytes.Compare(a.JobID[:], b.JobID[:]), cmp.Compare(a.Seq, b.Seq))
		})
		some := min(n, len(due))
		if s.short != nil {
			some = s.short(some)
		}
		more = some == n || some < len(due)
		parcels := make([]job.ClaimedDelivery, 0, n)
		for _, r := range due[:some] {
			until := time.Now().Add(hold)
			r.ClaimedUntil = &until
			r.fence++
			parcels = append(parcels, job.ClaimedDelivery{Delivery: r.Delivery, Fence: r.fence, TraceParent: r.traceparent, Target: job.Target{
				URL: "https://receiver.example/secret?token=1", Failures: s.endpointOf(endpoint).Failures,
			}})
		}
		return parcels, nil
	})
	return parcels, more && err == nil, err
}

// claimedRow gives the row that a claim still holds.
func (s *fakeStore) claimedRow(id job.ID, fence int) *parcelRow {
	r := s.parcel(id)
	if r == nil || r.fence != fence || r.ClaimedUntil == nil {
		return nil
	}
	return r
}

func (s *fakeStore) RecordDelivery(ctx context.Context, d job.DeliveryResult) (job.Recorded, error) {
	return call(ctx, s, "RecordDelivery", func() (job.Recorded, error) {
		r := s.claimedRow(d.DeliveryID, d.Fence)
		if r == nil {
			return job.Recorded{}, job.ErrStale
		}
		r.results = append(r.results, d)
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
		return job.Recorded{Number: r.Attempts, Disabled: d.Disable}, nil
	})
}

func (s *fakeStore) ReleaseDeliveries(ctx context.Context, parcels []job.ClaimedDelivery) error {
	_, err := call(ctx, s, "ReleaseDeliveries", func() (struct{}, error) {
		for _, p := range parcels {
			if r := s.claimedRow(p.Delivery.ID, p.Fence); r != nil {
				r.ClaimedUntil = nil
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) ReclaimDeliveries(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "ReclaimDeliveries", func() (n int, err error) {
		for _, r := range s.parcels {
			if n < limit && r.ClaimedUntil != nil && r.ClaimedUntil.Before(time.Now()) {
				r.ClaimedUntil = nil
				n++
			}
		}
		return n, nil
	})
}

func (s *fakeStore) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (clients []job.ID, last job.EndpointKey, err error) {
	_, err = call(ctx, s, "DueClients", func() (struct{}, error) {
		due := map[job.EndpointKey]bool{}
		var places []job.EndpointKey
		for _, r := range s.parcels {
			at := job.EndpointKey{Client: r.ClientID, Endpoint: r.Endpoint}
			if r.State != job.DeliveryPending || comparePlaces(at, after) <= 0 {
				continue
			}
			if _, known := due[at]; !known {
				places = append(places, at)
			}
			due[at] = due[at] || r.due(minAge)
		}
		slices.SortFunc(places, comparePlaces)
		if len(places) > look {
			places = places[:look]
			last = places[look-1]
		}
		for _, at := range places {
			if due[at] && !slices.Contains(clients, at.Client) {
				clients = append(clients, at.Client)
			}
		}
		return struct{}{}, nil
	})
	return clients, last, err
}

func comparePlaces(a, b job.EndpointKey) int {
	return cmp.Or(bytes.Compare(a.Client[:], b.Client[:]), bytes.Compare(a.Endpoint[:], b.Endpoint[:]))
}

func (s *fakeStore) FailOrphans(ctx context.Context, _, limit int) (int, error) {
	return call(ctx, s, "FailOrphans", func() (n int, err error) {
		for _, r := range s.parcels {
			if n < limit && r.State == job.DeliveryPending && s.endpointOf(r.Endpoint).Disabled != nil {
				r.State, r.LastError = job.DeliveryFailed, job.SendDisabled
				n++
			}
		}
		return n, nil
	})
}

// outboxRow is an outcome that is or was to be published.
type outboxRow struct {
	job.OutcomeMessage
	published time.Time // zero while it is not
}

func (s *fakeStore) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return call(ctx, s, "UnpublishedOutcomes", func() (messages []job.OutcomeMessage, err error) {
		for _, r := range s.outbox {
			if len(messages) < limit && r.published.IsZero() {
				messages = append(messages, r.OutcomeMessage)
			}
		}
		return messages, nil
	})
}

func (s *fakeStore) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	_, err := call(ctx, s, "MarkPublished", func() (struct{}, error) {
		marked := map[job.ID]int{}
		for _, m := range messages {
			marked[m.JobID] = m.Attempt
		}
		for _, r := range s.outbox {
			if r.published.IsZero() && marked[r.JobID] == r.Attempt {
				r.published = time.Now()
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *fakeStore) RepublishOutcomes(ctx context.Context) (int, error) {
	return call(ctx, s, "RepublishOutcomes", func() (n int, err error) {
		for _, r := range s.outbox {
			if !r.published.IsZero() {
				n++
			}
			r.published = time.Time{}
		}
		return n, nil
	})
}

func (s *fakeStore) RemovePublished(ctx context.Context, minAge time.Duration) error {
	_, err := call(ctx, s, "RemovePublished", func() (struct{}, error) {
		s.outbox = slices.DeleteFunc(s.outbox, func(r *outboxRow) bool {
			return !r.published.IsZero() && time.Since(r.published) >= minAge
		})
		return struct{}{}, nil
	})
	return err
}
