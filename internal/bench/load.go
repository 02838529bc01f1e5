package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/stack"
)

// target is where jobs are submitted. The simulator's generator takes three times the CPU, which would lower the maximum rate of a
// service on the same cores.
type target struct {
	url, key string
	body     []byte // nil: a job of no duration with a result of 1 KB
}

// submission is a request that one goroutine sends again and again.
type submission struct {
	client   *fasthttp.Client
	request  *fasthttp.Request
	response *fasthttp.Response
	want     int // status
}

func newSubmission(client *fasthttp.Client, to target) submission {
	s := newRead(client, to.url, to.key)
	s.want = fasthttp.StatusAccepted
	s.request.Header.SetMethod(fasthttp.MethodPost)
	s.request.Header.SetContentType("application/json")
	s.request.SetBodyRaw([]byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`))
	if to.body != nil {
		s.request.SetBodyRaw(to.body)
	}
	return s
}

func newRead(client *fasthttp.Client, url, key string) submission {
	s := submission{client, fasthttp.AcquireRequest(), fasthttp.AcquireResponse(), fasthttp.StatusOK}
	s.request.SetRequestURI(url)
	s.request.Header.Set("Authorization", "Bearer "+key)
	return s
}

func (s submission) send() error {
	err := s.client.Do(s.request, s.response)
	if err == nil && s.response.StatusCode() != s.want {
		err = fmt.Errorf("answer %d: %s", s.response.StatusCode(), s.response.Body())
	}
	return err
}

func newHTTPClient(connections int) *fasthttp.Client {
	const patience = 20 * time.Second
	return &fasthttp.Client{
		MaxConnsPerHost: connections, MaxConnWaitTimeout: patience, ReadTimeout: patience, MaxIdleConnDuration: time.Minute,
	}
}

// closed is a closed loop: each client submits its next job when the last one is answered and the gate has room.
type closed struct {
	clients int
	during  time.Duration // 0: until all jobs are submitted
	jobs    int           // 0: until during is over
	gate    *gate         // nil: always open
}

// load is the clients' observations.
type load struct {
	accepted int
	took     time.Duration
	latency  *hdrhistogram.Histogram // of accepted requests
}

func (l load) rate() float64 { return float64(l.accepted) / l.took.Seconds() }

// submit submits jobs. If a client fails, all stop.
func (c closed) submit(ctx context.Context, to target) (load, error) {
	client := newHTTPClient(c.clients)
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	timed := ctx
	if c.during > 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeout(ctx, c.during)
		defer cancel()
	}
	var mu sync.Mutex
	var begun atomic.Int64
	total := load{latency: newHistogram()}
	started := time.Now()
	for range c.clients {
		group.Go(func() (err error) {
			s, own := newSubmission(client, to), newHistogram()
			for err == nil && c.gate.enter(timed) && (c.jobs == 0 || begun.Add(1) <= int64(c.jobs)) {
				sent := time.Now()
				if err = s.send(); err == nil {
					record(own, time.Since(sent))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.latency.Merge(own)
			return cmp.Or(err, ctx.Err())
		})
	}
	err := group.Wait()
	total.accepted, total.took = int(total.latency.TotalCount()), time.Since(started)
	return total, err
}

// gate limits the jobs that are submitted and have not finished.
type gate struct {
	unfinished chan struct{}
	finished   int
}

// enter waits until one more may be submitted, and reports whether the context is still alive.
func (g *gate) enter(ctx context.Context) bool {
	if g != nil {
		select {
		case g.unfinished <- struct{}{}:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// update sets how many have finished in all. One goroutine calls it.
func (g *gate) update(finished int) {
	for ; g.finished < finished; g.finished++ {
		select {
		case <-g.unfinished:
		default: // the job did not come through the gate
		}
	}
}

// newHistogram counts microseconds, up to a minute.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(1, d.Microseconds()), time.Minute.Microseconds())) // it fits
}

// quantile returns milliseconds.
func quantile(h *hdrhistogram.Histogram, q float64) float64 {
	return float64(h.ValueAtQuantile(q)) / 1000
}

// paced sends requests at a constant rate, whether earlier ones are answered or not, and returns the times from when each was due
// to its answer.
func paced(ctx context.Context, rate float64, during time.Duration, send func(i int) error) (*hdrhistogram.Histogram, error) {
	latency := newHistogram()
	var mu sync.Mutex
	group, sending := errgroup.WithContext(ctx)
	started := time.Now()
	for i := range int(rate * during.Seconds()) {
		due := started.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if !stack.Sleep(sending, time.Until(due)) {
			break
		}
		group.Go(func() error {
			err := send(i)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			record(latency, took)
			return err
		})
	}
	return latency, cmp.Or(group.Wait(), ctx.Err())
}
