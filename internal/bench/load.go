package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
)

// load is what a run of the generator saw.
type load struct {
	accepted int
	took     time.Duration
	latency  *hdrhistogram.Histogram // of accepted requests, in microseconds
}

func (l load) rate() float64 { return float64(l.accepted) / l.took.Seconds() }

func (l load) quantile(q float64) time.Duration { return quantile(l.latency, q) }

func quantile(h *hdrhistogram.Histogram, q float64) time.Duration {
	return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond
}

// newHistogram is of microseconds, up to a minute.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// record counts a latency; what is longer than a minute counts as a minute.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), time.Minute.Microseconds())) // it fits
}

// body is what is submitted: a job of no duration with a result of 1 KB.
var body = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`)

// submission is a request that can be sent again and again by one goroutine.
type submission struct {
	client   *fasthttp.Client
	request  *fasthttp.Request
	response *fasthttp.Response
}

func newSubmission(client *fasthttp.Client, sys system) submission {
	s := submission{client: client, request: fasthttp.AcquireRequest(), response: fasthttp.AcquireResponse()}
	s.request.SetRequestURI(sys.url)
	s.request.Header.SetMethod(fasthttp.MethodPost)
	s.request.Header.SetContentType("application/json")
	s.request.Header.Set("Authorization", "Bearer "+sys.key)
	s.request.SetBodyRaw(body)
	return s
}

// send submits a job. Anything but 202 is an error.
func (s submission) send() error {
	if err := s.client.Do(s.request, s.response); err != nil {
		return err
	}
	if s.response.StatusCode() != fasthttp.StatusAccepted {
		return fmt.Errorf("answer %d: %s", s.response.StatusCode(), s.response.Body())
	}
	return nil
}

// status sends it and gives the status of the answer, 0 if there is none.
func (s submission) status() int {
	if err := s.client.Do(s.request, s.response); err != nil {
		return 0
	}
	return s.response.StatusCode()
}

// newClient has so many connections at most, which stay open between requests.
func newClient(connections int) *fasthttp.Client {
	return &fasthttp.Client{MaxConnsPerHost: connections, ReadTimeout: 20 * time.Second, MaxIdleConnDuration: time.Minute}
}

// generate submits jobs from concurrent clients for the given time, each as fast
// as it is answered and the gate lets it through.
func generate(ctx context.Context, sys system, clients int, d time.Duration, through *gate) (load, error) {
	client := newClient(clients)
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // one that fails ends the others
	if through != nil {
		defer context.AfterFunc(ctx, through.unlock)()
		defer time.AfterFunc(d, through.unlock).Stop()
	}
	total := load{latency: newHistogram()}
	var mu sync.Mutex
	var group sync.WaitGroup
	var failure error
	started := time.Now()
	for range clients {
		group.Go(func() {
			accepted, latency, err := submitUntil(ctx, newSubmission(client, sys), started.Add(d), through)
			mu.Lock()
			defer mu.Unlock()
			total.accepted += accepted
			total.latency.Merge(latency)
			if err != nil && failure == nil {
				failure = err
				cancel()
			}
		})
	}
	group.Wait()
	total.took = time.Since(started)
	return total, failure
}

func submitUntil(ctx context.Context, s submission, end time.Time, through *gate) (accepted int, latency *hdrhistogram.Histogram, err error) {
	latency = newHistogram()
	for {
		if err := through.enter(ctx); err != nil {
			return accepted, latency, err
		}
		sent := time.Now()
		if !sent.Before(end) {
			return accepted, latency, nil
		}
		if err := s.send(); err != nil {
			return accepted, latency, err
		}
		record(latency, time.Since(sent))
		accepted++
	}
}

// gate keeps what is submitted and has not finished within a bound. A nil gate
// is open.
type gate struct {
	bound int

	mu        sync.Mutex
	changed   *sync.Cond
	submitted int
	finished  int
	open      bool // for good
}

func newGate(bound int) *gate {
	g := &gate{bound: bound}
	g.changed = sync.NewCond(&g.mu)
	return g
}

// enter waits until one more may be submitted.
func (g *gate) enter(ctx context.Context) error {
	if g == nil {
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for !g.open && g.submitted-g.finished >= g.bound {
		g.changed.Wait()
	}
	g.submitted++
	return ctx.Err()
}

// update tells how many have finished in all.
func (g *gate) update(finished int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.finished = finished
	g.changed.Broadcast()
}

// unlock opens the gate for good: whoever waits has to see that it is over.
func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	g.changed.Broadcast()
}

// errUnfinished: accepted jobs did not finish in time.
var errUnfinished = errors.New("not all accepted jobs have finished")
