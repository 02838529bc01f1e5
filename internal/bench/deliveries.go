package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	eventsPerJob   = 5   // created, queued, assigned, running, succeeded
	singleJobs     = 100 // one at a time, for the latency
	oneClientJobs  = 800 // of the client with one webhook
	manyClientJobs = 40  // of each client with ten webhooks

	toOne        = "Webhook deliveries to one endpoint, per second"
	toMany       = "To 50 endpoints of 5 clients, per second"
	deliveryCPU  = "CPU of that, seconds of the deliverer, Postgres and Redis for 1,000"
	besideHangs  = "To 30 of 50 endpoints while 20 hang, per second"
	arrivalP50   = "Event to arrival at rest, p50, ms"
	arrivalP99   = "Event to arrival at rest, p99, ms"
	lostPatience = 20 * time.Second // without an arrival: the deliveries count as lost
)

// deliveries measures how fast and how soon webhook deliveries arrive, also while other endpoints hang.
func deliveries(ctx context.Context, l *lab) ([][]string, error) {
	return l.comparePrograms(func(s service, got sample) error {
		return l.phase(ctx, s, func(sys system) error {
			return sys.withWorker(ctx, func() error {
				return sys.with(ctx, "deliverer", "", func() error { return got.deliveries(ctx, sys) })
			})
		})
	}, toOne, toMany, deliveryCPU, besideHangs, arrivalP50, arrivalP99)
}

// endpoints of one client.
type endpoints struct{ answering, hanging int }

// deliveries takes a running system through the phases.
func (got sample) deliveries(ctx context.Context, sys system) error {
	var groups []*subscribers
	ten := endpoints{answering: 10}
	for _, each := range [][]endpoints{{{answering: 1}}, {{answering: 1}}, {ten, ten, ten, ten, ten}, {ten, {7, 3}, {7, 3}, {6, 4}, {0, 10}}} {
		g := newSubscribers()
		defer g.close()
		groups = append(groups, g)
		for _, e := range each {
			if err := g.subscribe(ctx, sys, e); err != nil {
				return err
			}
		}
	}
	stack.Sleep(ctx, quiet) // the processes learn who has webhooks
	if err := groups[0].submitOneByOne(ctx); err != nil {
		return err
	}
	got[arrivalP50], got[arrivalP99] = quantile(groups[0].latency, 0.5), quantile(groups[0].latency, 0.99)
	var one, many, mixed error
	got[toOne], one = groups[1].deliver(ctx, oneClientJobs)
	used, many := sys.while(func() error { got[toMany], many = groups[2].deliver(ctx, manyClientJobs); return many })
	got[deliveryCPU] = used.of("deliverer", "Postgres", "Redis") / (float64(manyClientJobs*eventsPerJob*groups[2].answering) / 1000)
	got[besideHangs], mixed = groups[3].deliver(ctx, manyClientJobs)
	return errors.Join(one, many, mixed)
}

// subscribers are clients with webhook endpoints in this process. Each endpoint has its own port: endpoints of a client at one origin
// share a limit.
type subscribers struct {
	targets   []target // one of each client
	answering int      // endpoints of all clients
	servers   []*httptest.Server
	ended     chan struct{} // closed to end the requests that hang
	news      chan struct{} // holds a token after an arrival

	mu          sync.Mutex
	seen        map[string]bool // ids of the deliveries
	first, last time.Time
	latency     []float64 // from the event to its arrival, ms
}

func newSubscribers() *subscribers {
	return &subscribers{ended: make(chan struct{}), news: make(chan struct{}, 1), seen: map[string]bool{}}
}

func (s *subscribers) close() {
	close(s.ended)
	for _, server := range s.servers {
		server.Close()
	}
}

// subscribe adds a client with webhooks for all events.
func (s *subscribers) subscribe(ctx context.Context, sys system, e endpoints) error {
	_, key, err := stack.Register(ctx, sys.root)
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{URL: sys.root, Key: key})
	for i := range e.answering + e.hanging {
		handler := s.receive
		if i >= e.answering {
			handler = func(http.ResponseWriter, *http.Request) { <-s.ended }
		}
		server := httptest.NewServer(http.HandlerFunc(handler))
		s.servers = append(s.servers, server)
		if err == nil {
			_, err = c.CreateWebhook(ctx, client.WebhookRequest{URL: server.URL, Events: []string{"*"}})
		}
	}
	s.targets = append(s.targets, target{sys.url, key, []byte(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)})
	s.answering += e.answering
	return err
}

// receive answers 200. A delivery that comes twice counts once.
func (s *subscribers) receive(_ http.ResponseWriter, request *http.Request) {
	now := time.Now()
	_, _ = io.Copy(io.Discard, request.Body)
	happened, err := time.Parse(time.RFC3339Nano, request.Header.Get("ce-time"))
	s.mu.Lock()
	defer s.mu.Unlock()
	id := request.Header.Get("webhook-id")
	if s.seen[id] || err != nil {
		return
	}
	if len(s.seen) == 0 {
		s.first = now
	}
	s.seen[id], s.last = true, now
	s.latency = append(s.latency, milliseconds(now.Sub(happened)))
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// await waits until n deliveries have arrived, and returns their rate per second.
func (s *subscribers) await(ctx context.Context, n int) (rate float64, err error) {
	for {
		s.mu.Lock()
		got, took := len(s.seen), s.last.Sub(s.first)
		s.mu.Unlock()
		if got >= n {
			return float64(got) / took.Seconds(), nil
		}
		select {
		case <-s.news:
		case <-time.After(lostPatience):
			return 0, fmt.Errorf("%d of %d deliveries have arrived, and none for %v", got, n, lostPatience)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// deliver submits so many jobs of each client and waits for their deliveries.
func (s *subscribers) deliver(ctx context.Context, jobs int) (rate float64, err error) {
	group, submitting := errgroup.WithContext(ctx)
	for _, to := range s.targets {
		group.Go(func() error {
			_, err := closed{clients: 4, jobs: jobs}.submit(submitting, to)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return s.await(ctx, jobs*eventsPerJob*s.answering)
}

// submitOneByOne submits each job of the only client after the deliveries of the last one and a random pause.
func (s *subscribers) submitOneByOne(ctx context.Context) error {
	submitted := 0
	_, err := closed{clients: 1, jobs: singleJobs, admit: func(ctx context.Context) error {
		_, err := s.await(ctx, submitted*eventsPerJob)
		stack.Sleep(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		submitted++
		return err
	}}.submit(ctx, s.targets[0])
	if err == nil {
		_, err = s.await(ctx, singleJobs*eventsPerJob)
	}
	return err
}
