package experiments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// Targets of deliveries: signed ones per second, and from an event to its arrival.
const (
	backlogTarget    = 2000.0
	besideTarget     = 3000.0 // while jobs are submitted
	delivery99Target = 100.0  // ms
)

const (
	eventsPerJob     = 2      // written by a submission while no worker runs: each is one delivery
	deliveryJobs     = 10_000 // of a phase
	idleDeliveryJobs = 300    // submitted one by one
	deliveryClients  = 64
)

// Deliveries measures the sending of webhooks to a fast receiver on the same machine, and
// beside it plain requests, without rows, queue and signatures.
func Deliveries(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	m := deliveryMeasure{lab: l}
	m.received = &counter{answer: m.receive}
	receiver, err := listen(&fasthttp.Server{Handler: m.received.handle, NoDefaultServerHeader: true})
	if err != nil {
		return nil, err
	}
	defer receiver.Close()
	m.url = "http://" + receiver.Addr().String() + "/"
	o := l.Options
	o.Slots = 1
	err = l.Phase(ctx, o, l.StartService, func(d *lab.Database, sys lab.System) error {
		m.d, m.sys = d, sys
		c, err := client.New(client.Config{URL: sys.Base, Key: sys.Key})
		if err != nil {
			return err
		}
		if _, err := c.CreateWebhook(ctx, client.WebhookRequest{URL: m.url, Events: []string{"*"}}); err != nil {
			return fmt.Errorf("registering a webhook: %w", err)
		}
		list, err = m.run(ctx)
		return err
	})
	return list, err
}

type deliveryMeasure struct {
	lab      *lab.Lab
	d        *lab.Database
	sys      lab.System
	url      string // of the receiver
	received *counter

	mu      sync.Mutex
	latency *hdrhistogram.Histogram // of deliveries, from ce-time to arrival; nil: not measured
}

// run measures a backlog, deliveries while jobs are submitted, and single ones.
func (m *deliveryMeasure) run(ctx context.Context) (list []figures.Figure, err error) {
	plain, err := m.plain(ctx, 3*time.Second)
	if err != nil {
		return nil, err
	}
	if err := m.submit(ctx, deliveryJobs, deliveryClients); err != nil {
		return nil, err
	}
	began := time.Now()
	hooks, err := m.lab.Launch(m.sys, "webhooks")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hooks.Stop()) }()
	backlog, err := m.delivered(ctx, deliveryJobs*eventsPerJob, began)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := m.submit(ctx, deliveryJobs, deliveryClients); err != nil {
		return nil, err
	}
	together, err := m.delivered(ctx, deliveryJobs*eventsPerJob, began)
	if err != nil {
		return nil, err
	}
	if err := m.oneByOne(ctx); err != nil {
		return nil, err
	}
	return m.figures(plain, backlog, together), nil
}

func (m *deliveryMeasure) figures(plain, backlog, together float64) []figures.Figure {
	at := func(q float64) float64 { return loadgen.Milliseconds(loadgen.Quantile(m.latency, q)) }
	m.lab.Printf("one webhook for all events, one webhooks process; plain requests: %.0f/s", plain)
	m.lab.Printf("deliveries/s of a backlog: %.0f (%.2f of plain requests)", backlog, backlog/plain)
	m.lab.Printf("deliveries/s while jobs are submitted: %.0f (%.2f of plain requests)", together, together/plain)
	m.lab.Printf("event to arrival, idle: p50 %.1f ms, p99 %.1f", at(50), at(99))
	return []figures.Figure{
		figures.AtLeast("deliveries/s of a backlog", backlogTarget, backlog, "/s", fmt.Sprintf("plain requests: %.0f/s", plain)),
		figures.AtLeast("deliveries/s beside full submission", besideTarget, together, "/s", ""),
		figures.AtMost("event to arrival at idle, p99", delivery99Target, at(99), "ms", fmt.Sprintf("p50 %.1f ms", at(50))),
	}
}

func (m *deliveryMeasure) submit(ctx context.Context, jobs, clients int) error {
	_, err := loadgen.Closed{Clients: clients, Jobs: jobs}.Submit(ctx, m.sys.Target)
	return err
}

// delivered waits until so many further deliveries have arrived and all of them
// are recorded, and gives their rate since began.
func (m *deliveryMeasure) delivered(ctx context.Context, n int, began time.Time) (rate float64, err error) {
	var arrived int64
	var pending float64
	err = lab.Poll(ctx, 3*time.Minute, "all deliveries recorded", func() (bool, error) {
		pending, err = m.d.Number(ctx, "SELECT count(*) FROM deliveries WHERE state <> 'DELIVERED'")
		arrived = m.received.Load()
		return pending == 0 && arrived >= int64(n), err
	})
	if err != nil {
		return 0, fmt.Errorf("%d of %d deliveries have arrived, %.0f are pending: %w", arrived, n, pending, err)
	}
	m.received.Add(int64(-n))
	return float64(n) / time.Since(began).Seconds(), nil
}

// oneByOne submits jobs one by one, each when the events of the one before have
// arrived, and measures the time from the events to their arrival.
func (m *deliveryMeasure) oneByOne(ctx context.Context) error {
	m.mu.Lock()
	m.latency = loadgen.NewHistogram()
	m.mu.Unlock()
	for range idleDeliveryJobs {
		if err := m.submit(ctx, 1, 1); err != nil {
			return err
		}
		if _, err := m.delivered(ctx, eventsPerJob, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

func (m *deliveryMeasure) receive(c *fasthttp.RequestCtx) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latency != nil {
		if at, err := time.Parse(time.RFC3339Nano, string(c.Request.Header.Peek("Ce-Time"))); err == nil {
			loadgen.Record(m.latency, time.Since(at))
		}
	}
	c.SetStatusCode(fasthttp.StatusNoContent)
}

// plain gives how many plain requests a second the receiver gets from the same HTTP
// client, without anything else being done.
func (m *deliveryMeasure) plain(ctx context.Context, d time.Duration) (float64, error) {
	const senders = 10
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for ctx.Err() == nil {
				response, err := client.Post(m.url, "application/json", bytes.NewReader(loadgen.Body))
				if err != nil {
					return
				}
				_ = response.Body.Close()
			}
		})
	}
	group.Wait()
	n := m.received.Swap(0)
	if n == 0 {
		return 0, errors.New("the receiver gets nothing")
	}
	return float64(n) / d.Seconds(), nil
}
