package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
)

// Targets of deliveries: signed ones per second, rows and queue included, and
// the 99th percentile from an event to its arrival when all is idle.
const (
	deliveryTarget = 2000.0
	promptTarget   = 100 * time.Millisecond
)

// eventsPerJob is how many events a submission writes while no worker runs:
// each becomes one delivery.
const eventsPerJob = 2

const (
	deliveryJobs = 10_000 // of a phase; each makes two deliveries
	promptJobs   = 300    // submitted one by one
)

// deliveries measures the sending of webhooks to a fast receiver on the same
// machine. The share of plain requests, without rows, queue and signatures, says
// what the machine could do at most.
func deliveries(ctx context.Context, l *lab) (figures []figure, err error) {
	r, err := newReceiver()
	if err != nil {
		return nil, err
	}
	defer r.close()
	o := l.o
	o.slots = 1
	err = l.phase(ctx, o, l.startForgeRun, func(d *database, sys system) error {
		m := deliveryMeasure{s: l.stack, d: d, sys: sys, r: r}
		if err := m.subscribe(ctx); err != nil {
			return err
		}
		figures, err = m.run(ctx, deliveryJobs, promptJobs)
		return err
	})
	return figures, err
}

type deliveryMeasure struct {
	s   *stack
	d   *database
	sys system
	r   *receiver
}

func (m *deliveryMeasure) run(ctx context.Context, jobs, idle int) (figures []figure, err error) {
	plain, err := m.r.plain(ctx, 3*time.Second)
	if err != nil {
		return nil, err
	}
	fmt.Printf("plain requests: %.0f/s\n", plain)
	if err := m.submit(ctx, jobs, 64); err != nil {
		return nil, err
	}
	began := time.Now()
	hooks, err := launch(m.s.forgerun, m.sys.env, "webhooks")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hooks.stop()) }()
	backlog, err := m.delivered(ctx, jobs*eventsPerJob, began)
	if err != nil {
		return nil, err
	}
	fmt.Printf("backlog: %.0f deliveries/s\n", backlog)
	began = time.Now()
	if err := m.submit(ctx, jobs, 64); err != nil {
		return nil, err
	}
	together, err := m.delivered(ctx, jobs*eventsPerJob, began)
	if err != nil {
		return nil, err
	}
	fmt.Printf("while jobs are submitted: %.0f deliveries/s\n", together)
	latency, err := m.prompt(ctx, idle)
	if err != nil {
		return nil, err
	}
	p50, p99 := quantile(latency, 50), quantile(latency, 99)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(table, "\none webhook for all events, one webhooks process\tmeasured\tshare of plain requests (%.0f/s)\n", plain)
	_, _ = fmt.Fprintf(table, "deliveries/s of a backlog\t%.0f\t%.2f\n", backlog, backlog/plain)
	_, _ = fmt.Fprintf(table, "deliveries/s while jobs are submitted\t%.0f\t%.2f\n", together, together/plain)
	_, _ = fmt.Fprintf(table, "event to arrival, idle: p50, p99\t%v, %v\t\n", p50.Round(100*time.Microsecond), p99.Round(100*time.Microsecond))
	if err := table.Flush(); err != nil {
		return nil, err
	}
	return []figure{
		atLeast("deliveries/s of a backlog", deliveryTarget, backlog, "/s", fmt.Sprintf("plain requests: %.0f/s", plain)),
		atMost("event to arrival at idle, p99", milliseconds(promptTarget), milliseconds(p99), "ms", fmt.Sprintf("p50 %.1f ms", milliseconds(p50))),
	}, nil
}

func (m *deliveryMeasure) subscribe(ctx context.Context) error {
	body := fmt.Sprintf(`{"url":%q,"events":["*"]}`, m.r.url)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.sys.base+"/v1/webhooks", bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+m.sys.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("registering a webhook: %s: %s", response.Status, text)
	}
	return nil
}

// submit submits n jobs from so many clients at once.
func (m *deliveryMeasure) submit(ctx context.Context, n, clients int) (err error) {
	client := newClient(clients)
	defer client.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	var mu sync.Mutex
	for range clients {
		group.Go(func() {
			s := newSubmission(client, m.sys)
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if failure := s.send(); failure != nil {
					mu.Lock()
					err = errors.Join(err, failure)
					mu.Unlock()
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(err, ctx.Err())
}

// delivered waits until so many further deliveries have arrived and all of them
// are recorded, and gives their rate since began.
func (m *deliveryMeasure) delivered(ctx context.Context, n int, began time.Time) (rate float64, err error) {
	for limit := time.Now().Add(3 * time.Minute); ; {
		var pending int
		if err := m.d.conn.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE state <> 'DELIVERED'").Scan(&pending); err != nil {
			return 0, err
		}
		arrived := int(m.r.count.Load())
		if pending == 0 && arrived >= n {
			break
		}
		if time.Now().After(limit) {
			return 0, fmt.Errorf("%d of %d deliveries have arrived, %d are pending; giving up", arrived, n, pending)
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.r.count.Add(int64(-n))
	return float64(n) / time.Since(began).Seconds(), nil
}

// prompt submits jobs one by one, each when the events of the one before have
// arrived, and gives the time from the events to their arrival in microseconds.
func (m *deliveryMeasure) prompt(ctx context.Context, n int) (*hdrhistogram.Histogram, error) {
	latency := newHistogram()
	m.r.mu.Lock()
	m.r.latency = latency
	m.r.mu.Unlock()
	for range n {
		if err := m.submit(ctx, 1, 1); err != nil {
			return nil, err
		}
		if _, err := m.delivered(ctx, eventsPerJob, time.Now()); err != nil {
			return nil, err
		}
	}
	return latency, nil
}

// receiver answers at once and counts.
type receiver struct {
	url      string
	listener net.Listener
	count    atomic.Int64

	mu      sync.Mutex
	latency *hdrhistogram.Histogram // of deliveries, from ce-time to arrival; nil: not measured
}

func newReceiver() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/", listener: l}
	server := &fasthttp.Server{Handler: r.receive, NoDefaultServerHeader: true}
	go func() { _ = server.Serve(l) }() // ends with close
	return r, nil
}

// close takes no more connections; who has one is not waited for.
func (r *receiver) close() { _ = r.listener.Close() }

func (r *receiver) receive(c *fasthttp.RequestCtx) {
	r.mu.Lock()
	if r.latency != nil {
		if at, err := time.Parse(time.RFC3339Nano, string(c.Request.Header.Peek("Ce-Time"))); err == nil {
			_ = r.latency.RecordValue(max(1, time.Since(at).Microseconds())) // beyond a minute: not counted, and the count shows it
		}
	}
	r.mu.Unlock()
	c.SetStatusCode(fasthttp.StatusNoContent)
	r.count.Add(1)
}

// plain gives how many plain requests a second it gets from the same HTTP
// client, without anything else being done.
func (r *receiver) plain(ctx context.Context, d time.Duration) (float64, error) {
	const senders = 10
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for ctx.Err() == nil {
				response, err := client.Post(r.url, "application/json", bytes.NewReader(body))
				if err != nil {
					return
				}
				_ = response.Body.Close()
			}
		})
	}
	group.Wait()
	n := r.count.Swap(0)
	if n == 0 {
		return 0, errors.New("the receiver gets nothing")
	}
	return float64(n) / d.Seconds(), nil
}
