package main

import (
	"context"
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
	singleJobs     = 100 // submitted one at a time, to measure latency
	oneClientJobs  = 800 // submitted by the client with one webhook
	manyClientJobs = 40  // submitted by each client with ten webhooks

	toOne        = "Webhook deliveries to one endpoint, per second"
	toMany       = "To 50 endpoints of 5 clients, per second"
	deliveryCPU  = "CPU of that, seconds of the deliverer, Postgres and Redis for 1,000"
	besideHangs  = "To 30 of 50 endpoints while 20 hang, per second"
	arrivalP50   = "Event to arrival at rest, p50, ms"
	arrivalP99   = "Event to arrival at rest, p99, ms"
	lostPatience = 20 * time.Second // if no delivery arrives for this long, the missing deliveries count as lost
)

func deliveries(l *lab) {
	l.compare(l.programs(func(s service, got sample) {
		l.phase(s, func(sys system) {
			sys.start("worker", "")
			sys.start("deliverer", "")
			got.deliveries(sys)
		})
	}), toOne, toMany, deliveryCPU, besideHangs, arrivalP50, arrivalP99)
}

type endpoints struct{ answering, hanging int }

func (got sample) deliveries(sys system) {
	ten := endpoints{answering: 10}
	single, one := sys.subscribe(endpoints{answering: 1}), sys.subscribe(endpoints{answering: 1})
	many := sys.subscribe(ten, ten, ten, ten, ten)
	mixed := sys.subscribe(ten, endpoints{7, 3}, endpoints{7, 3}, endpoints{6, 4}, endpoints{0, 10})
	sys.sleep(quiet) // during this time, the processes read the new webhooks
	check(single.submitOneByOne(sys.ctx))
	got[arrivalP50], got[arrivalP99] = quantile(single.latency, 0.5), quantile(single.latency, 0.99)
	got[toOne] = must(one.deliver(sys.ctx, oneClientJobs))
	used := sys.while(func() { got[toMany] = must(many.deliver(sys.ctx, manyClientJobs)) })
	got[deliveryCPU] = used.of("deliverer", "Postgres", "Redis") / (float64(manyClientJobs*eventsPerJob*many.answering) / 1000)
	got[besideHangs] = must(mixed.deliver(sys.ctx, manyClientJobs))
}

// subscribers are clients with webhook endpoints in this process. Each endpoint has its own port, because the service limits a client's
// concurrent deliveries to each origin.
type subscribers struct {
	targets   []target
	answering int           // number of endpoints that respond, of all clients together
	ended     chan struct{} // closed at the end; hanging endpoints then respond
	news      chan struct{} // holds a token if a delivery has arrived

	mu          sync.Mutex
	seen        map[string]bool // ids of the deliveries
	first, last time.Time
	latency     []float64 // ms from each event to its arrival
}

func newSubscribers() *subscribers {
	return &subscribers{ended: make(chan struct{}), news: make(chan struct{}, 1), seen: map[string]bool{}}
}

func (s system) subscribe(each ...endpoints) *subscribers {
	all := newSubscribers()
	for _, e := range each {
		_, key, err := stack.Register(s.ctx, s.root)
		check(err)
		c := must(client.New(client.Config{URL: s.root, Key: key}))
		for i := range e.answering + e.hanging {
			handler := all.receive
			if i >= e.answering {
				handler = func(http.ResponseWriter, *http.Request) { <-all.ended }
			}
			server := httptest.NewServer(http.HandlerFunc(handler))
			s.atEnd(func() error { server.Close(); return nil })
			must(c.CreateWebhook(s.ctx, client.WebhookRequest{URL: server.URL, Events: []string{"*"}}))
		}
		all.targets = append(all.targets, target{s.url, key, []byte(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)})
		all.answering += e.answering
	}
	s.atEnd(func() error { close(all.ended); return nil }) // runs before the calls of server.Close, which wait for hanging requests
	return all
}

// receive responds with 200. It counts a repeated delivery only once.
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

// submitOneByOne waits for the deliveries of each job, and a random pause, before it submits the next.
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
