package apptest

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// The part of Store that delivery workers and their relay see.

type DeliveryRow struct {
	job.Delivery
	Fence       int
	Traceparent string
	Results     []job.DeliveryResult // that were accepted
}

// endpointOf is the state of an endpoint; the zero one is a callback's.
func (s *Store) EndpointOf(id job.ID) *webhookRow {
	if s.Hooked[id] == nil {
		s.Hooked[id] = &webhookRow{}
	}
	return s.Hooked[id]
}

// deliver stores a delivery that is due, and gives its id.
func (s *Store) Deliver(client, endpoint job.ID, change ...func(*DeliveryRow)) job.ID {
	now := time.Now()
	r := &DeliveryRow{Delivery: job.Delivery{
		ID: app.NewID(), ClientID: client, Endpoint: endpoint, WebhookID: endpoint, JobID: app.NewID(), Seq: 1, EventID: app.NewID(),
		EventName: job.EventSucceeded, CreatedAt: now, State: job.DeliveryPending, NextAttemptAt: &now,
	}}
	for _, f := range change {
		f(r)
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.DeliveryRows = append(s.DeliveryRows, r)
	return r.ID
}

// meddle changes what is stored, as another process would.
func (s *Store) Meddle(f func()) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	f()
}

// delivery gives a copy of a row.
func (s *Store) Delivery(id job.ID) DeliveryRow {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return *s.Row(id)
}

func (s *Store) Row(id job.ID) *DeliveryRow {
	for _, r := range s.DeliveryRows {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// inState counts the deliveries in a state, and those of them that are claimed.
func (s *Store) InState(state job.DeliveryState) (n, claimed int) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, r := range s.DeliveryRows {
		if r.State == state {
			n++
			if r.ClaimedUntil != nil {
				claimed++
			}
		}
	}
	return n, claimed
}

func (r *DeliveryRow) due(age time.Duration) bool {
	return r.State == job.DeliveryPending && r.ClaimedUntil == nil && !r.NextAttemptAt.After(time.Now().Add(-age))
}

func (s *Store) DueEndpoints(ctx context.Context, client job.ID) ([]job.ID, error) {
	return call(ctx, s, "DueEndpoints", func() (endpoints []job.ID, err error) {
		for _, r := range s.DeliveryRows {
			if r.ClientID == client && r.due(0) && !slices.Contains(endpoints, r.Endpoint) {
				endpoints = append(endpoints, r.Endpoint)
			}
		}
		return endpoints, nil
	})
}

func (s *Store) ClaimDeliveries(ctx context.Context, client, endpoint job.ID, n int, hold time.Duration) (deliveries []job.ClaimedDelivery, more bool, err error) {
	deliveries, err = call(ctx, s, "ClaimDeliveries", func() ([]job.ClaimedDelivery, error) {
		var due []*DeliveryRow
		for _, r := range s.DeliveryRows {
			if r.ClientID == client && r.Endpoint == endpoint && r.due(0) && s.EndpointOf(endpoint).Disabled == nil {
				due = append(due, r)
			}
		}
		slices.SortStableFunc(due, func(a, b *DeliveryRow) int {
			return cmp.Or(a.NextAttemptAt.Compare(*b.NextAttemptAt), bytes.Compare(a.JobID[:], b.JobID[:]), cmp.Compare(a.Seq, b.Seq))
		})
		some := min(n, len(due))
		if s.Short != nil {
			some = s.Short(some)
		}
		more = some == n || some < len(due)
		deliveries := make([]job.ClaimedDelivery, 0, n)
		for _, r := range due[:some] {
			until := time.Now().Add(hold)
			r.ClaimedUntil = &until
			r.Fence++
			deliveries = append(deliveries, job.ClaimedDelivery{Delivery: r.Delivery, Fence: r.Fence, TraceParent: r.Traceparent, Target: job.Target{
				URL: "https://receiver.example/secret?token=1", Failures: s.EndpointOf(endpoint).Failures,
			}})
		}
		return deliveries, nil
	})
	return deliveries, more && err == nil, err
}

// claimedRow gives the row that a claim still holds.
func (s *Store) claimedRow(id job.ID, fence int) *DeliveryRow {
	r := s.Row(id)
	if r == nil || r.Fence != fence || r.ClaimedUntil == nil {
		return nil
	}
	return r
}

func (s *Store) RecordDelivery(ctx context.Context, d job.DeliveryResult) (job.Recorded, error) {
	return call(ctx, s, "RecordDelivery", func() (job.Recorded, error) {
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
		e := s.EndpointOf(r.Endpoint)
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

func (s *Store) ReleaseDeliveries(ctx context.Context, deliveries []job.ClaimedDelivery) error {
	_, err := call(ctx, s, "ReleaseDeliveries", func() (struct{}, error) {
		for _, p := range deliveries {
			if r := s.claimedRow(p.Delivery.ID, p.Fence); r != nil {
				r.ClaimedUntil = nil
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *Store) ReclaimDeliveries(ctx context.Context, limit int) (int, error) {
	return call(ctx, s, "ReclaimDeliveries", func() (n int, err error) {
		for _, r := range s.DeliveryRows {
			if n < limit && r.ClaimedUntil != nil && r.ClaimedUntil.Before(time.Now()) {
				r.ClaimedUntil = nil
				n++
			}
		}
		return n, nil
	})
}

func (s *Store) DueClients(ctx context.Context, after job.EndpointKey, minAge time.Duration, look int) (clients []job.ID, last job.EndpointKey, err error) {
	_, err = call(ctx, s, "DueClients", func() (struct{}, error) {
		due := map[job.EndpointKey]bool{}
		var places []job.EndpointKey
		for _, r := range s.DeliveryRows {
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

func (s *Store) FailOrphans(ctx context.Context, _, limit int) (int, error) {
	return call(ctx, s, "FailOrphans", func() (n int, err error) {
		for _, r := range s.DeliveryRows {
			if n < limit && r.State == job.DeliveryPending && s.EndpointOf(r.Endpoint).Disabled != nil {
				r.State, r.LastError = job.DeliveryFailed, job.SendDisabled
				n++
			}
		}
		return n, nil
	})
}

// outboxRow is an outcome that is or was to be published.
type OutboxRow struct {
	job.OutcomeMessage
	Published time.Time // zero while it is not
}

func (s *Store) UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error) {
	return call(ctx, s, "UnpublishedOutcomes", func() (messages []job.OutcomeMessage, err error) {
		for _, r := range s.Outbox {
			if len(messages) < limit && r.Published.IsZero() {
				messages = append(messages, r.OutcomeMessage)
			}
		}
		return messages, nil
	})
}

func (s *Store) MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error {
	_, err := call(ctx, s, "MarkPublished", func() (struct{}, error) {
		marked := map[job.ID]int{}
		for _, m := range messages {
			marked[m.JobID] = m.Attempt
		}
		for _, r := range s.Outbox {
			if r.Published.IsZero() && marked[r.JobID] == r.Attempt {
				r.Published = time.Now()
			}
		}
		return struct{}{}, nil
	})
	return err
}

func (s *Store) RepublishOutcomes(ctx context.Context) (int, error) {
	return call(ctx, s, "RepublishOutcomes", func() (n int, err error) {
		for _, r := range s.Outbox {
			if !r.Published.IsZero() {
				n++
			}
			r.Published = time.Time{}
		}
		return n, nil
	})
}

func (s *Store) RemovePublished(ctx context.Context, minAge time.Duration) error {
	_, err := call(ctx, s, "RemovePublished", func() (struct{}, error) {
		s.Outbox = slices.DeleteFunc(s.Outbox, func(r *OutboxRow) bool {
			return !r.Published.IsZero() && time.Since(r.Published) >= minAge
		})
		return struct{}{}, nil
	})
	return err
}
