package delivery

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// fakeSender sends by a function, and counts.
type fakeSender struct {
	send func(ctx context.Context, p job.ClaimedDelivery) job.Sent

	mu       sync.Mutex
	inFlight map[job.ID]int        // by endpoint
	most     map[job.ID]int        // at once, by endpoint
	sent     []job.ClaimedDelivery // in the order of their begin
}

func newFakeSender(send func(ctx context.Context, p job.ClaimedDelivery) job.Sent) *fakeSender {
	return &fakeSender{send: send, inFlight: map[job.ID]int{}, most: map[job.ID]int{}}
}

func (s *fakeSender) Send(ctx context.Context, p job.ClaimedDelivery) job.Sent {
	s.mu.Lock()
	s.sent = append(s.sent, p)
	s.inFlight[p.Endpoint]++
	s.most[p.Endpoint] = max(s.most[p.Endpoint], s.inFlight[p.Endpoint])
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight[p.Endpoint]--
	}()
	return s.send(ctx, p)
}

// atOnce gives the most deliveries that were in flight to an endpoint since it was
// last asked for.
func (s *fakeSender) atOnce(endpoint job.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most[endpoint]
	s.most[endpoint] = s.inFlight[endpoint]
	return most
}

func (s *fakeSender) begun() []job.ClaimedDelivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// answers is a receiver that takes a while and answers with a status.
func answers(status int, took time.Duration) func(context.Context, job.ClaimedDelivery) job.Sent {
	return func(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
		began := time.Now()
		if took > 0 && !app.Sleep(ctx, took) {
			return failedWith(began, job.SendTimeout, 0)
		}
		switch status {
		case 200:
			return failedWith(began, "", status)
		case 410:
			return failedWith(began, job.SendGone, status)
		default:
			return failedWith(began, job.SendServerError, status)
		}
	}
}

// hanging is a receiver that never answers.
func hanging(ctx context.Context, _ job.ClaimedDelivery) job.Sent {
	began := time.Now()
	select {
	case <-ctx.Done():
	case <-time.After(testTimeout):
	}
	return failedWith(began, job.SendTimeout, 0)
}

func failedWith(began time.Time, class job.SendError, status int) job.Sent {
	return job.Sent{Attempt: job.DeliveryAttempt{
		StartedAt: began, Duration: time.Since(began), Status: status, Error: class, Body: []byte("an answer"),
	}}
}
