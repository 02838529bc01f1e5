package experiments

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

const (
	hangPath = "/hang"
	// patience is how long nothing may arrive before the deliveries count as lost.
	patience = 20 * time.Second
)

// receivers are webhook endpoints in this process. Each one has its own port: a client's endpoints at one origin share a limit.
type receivers struct {
	server http.Server
	ended  chan struct{} // closed to end the requests that hang
	news   chan struct{} // holds a token after an arrival

	mu          sync.Mutex
	seen        map[string]struct{} // ids of the deliveries that were answered
	first, last time.Time
	latency     *hdrhistogram.Histogram // from the event to its arrival
}

func newReceivers() *receivers {
	r := &receivers{
		ended: make(chan struct{}), news: make(chan struct{}, 1), seen: map[string]struct{}{}, latency: loadgen.NewHistogram(),
	}
	r.server.Handler = r
	return r
}

// open adds an endpoint with the path and returns its URL.
func (r *receivers) open(path string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = r.server.Serve(l) }() // it fails when the server is closed
	return "http://" + l.Addr().String() + path, nil
}

func (r *receivers) close() error {
	close(r.ended)
	return r.server.Close()
}

// ServeHTTP answers 200 at once, or not at all on hangPath. A delivery that comes twice counts once.
func (r *receivers) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	now := time.Now()
	_, _ = io.Copy(io.Discard, request.Body)
	if request.URL.Path == hangPath {
		select {
		case <-r.ended:
		case <-request.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	happened, err := time.Parse(time.RFC3339Nano, request.Header.Get("ce-time"))
	r.mu.Lock()
	defer r.mu.Unlock()
	id := request.Header.Get("webhook-id")
	if _, twice := r.seen[id]; twice || err != nil {
		return
	}
	if len(r.seen) == 0 {
		r.first = now
	}
	r.seen[id], r.last = struct{}{}, now
	loadgen.Record(r.latency, now.Sub(happened))
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// await waits until n deliveries have been answered.
func (r *receivers) await(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		got := len(r.seen)
		r.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-r.news:
		case <-time.After(patience):
			return fmt.Errorf("%d of %d deliveries have arrived, and none for %v", got, n, patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rate returns the deliveries per second, from the first to the last.
func (r *receivers) rate() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(len(r.seen)) / r.last.Sub(r.first).Seconds()
}

var fastJob = []byte(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)

// endpoints of one client.
type endpoints struct{ answering, hanging int }

// subscribers are clients and the receivers of their events.
type subscribers struct {
	*receivers
	targets   []loadgen.Target // one of each client
	answering int              // endpoints of all clients
}

// subscribe adds a client.
func (s *subscribers) subscribe(ctx context.Context, sys lab.System, e endpoints) error {
	urls := make([]string, e.answering+e.hanging)
	for i := range urls {
		path := "/"
		if i >= e.answering {
			path = hangPath
		}
		var err error
		if urls[i], err = s.open(path); err != nil {
			return err
		}
	}
	target, err := sys.Subscribe(ctx, urls...)
	target.Body = fastJob
	s.targets, s.answering = append(s.targets, target), s.answering+e.answering
	return err
}

// deliver submits so many jobs of each client and waits until their deliveries have arrived. It returns the deliveries per second.
func (s *subscribers) deliver(ctx context.Context, jobs int) (float64, error) {
	group, submitting := errgroup.WithContext(ctx)
	for _, target := range s.targets {
		group.Go(func() error {
			_, err := loadgen.Closed{Clients: 4, Jobs: jobs}.Submit(submitting, target)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	err := s.await(ctx, jobs*eventsPerJob*s.answering)
	return s.rate(), err
}

// submitOneByOne submits jobs of the only client, each after the deliveries of the one before and a random pause.
func (s *subscribers) submitOneByOne(ctx context.Context, jobs int) error {
	connection := loadgen.NewClient(1)
	defer connection.CloseIdleConnections()
	submission := loadgen.NewSubmission(connection, s.targets[0])
	for i := range jobs {
		lab.Pause(ctx, time.Duration(rand.IntN(20))*time.Millisecond)
		if err := submission.Send(); err != nil {
			return err
		}
		if err := s.await(ctx, (i+1)*eventsPerJob); err != nil {
			return err
		}
	}
	return nil
}
