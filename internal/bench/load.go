package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

// target is a request: a submission if it has a body, otherwise a read.
type target struct {
	url, key string
	body     []byte
}

// plainJob has no duration and a result of 1 KB.
var plainJob = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`)

// closed is a load generator with a closed loop: each client waits for the response and for `admit` before it sends again. The simulator's
// load generator needs three times the CPU, so it would slow down the service.
type closed struct {
	clients int
	during  time.Duration               // duration of the load; 0: the load ends after `jobs` requests
	jobs    int                         // number of requests; 0: no limit
	admit   func(context.Context) error // called before each request; may block to delay the request; nil: no delay
}

type load struct {
	accepted int
	took     time.Duration
	latency  []float64 // of accepted requests, ms
}

func (l load) rate() float64 { return float64(l.accepted) / l.took.Seconds() }

func (c closed) submit(ctx context.Context, to target) (load, error) {
	return c.send(ctx, func(int) *target { return &to })
}

func (c closed) send(ctx context.Context, next func(i int) *target) (load, error) {
	const patience = 20 * time.Second
	client := &fasthttp.Client{
		MaxConnsPerHost: c.clients, MaxConnWaitTimeout: patience, ReadTimeout: patience, MaxIdleConnDuration: time.Minute,
	}
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	timed, cancel := context.WithTimeout(ctx, cmp.Or(c.during, time.Hour))
	defer cancel()
	var mu sync.Mutex
	var begun atomic.Int64
	var total load
	started := time.Now()
	for range c.clients {
		group.Go(func() error {
			request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			var latency []float64
			var last *target
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				total.latency = append(total.latency, latency...)
			}()
			for i := int(begun.Add(1)); c.jobs == 0 || i <= c.jobs; i = int(begun.Add(1)) {
				if err := c.enter(timed); err != nil || timed.Err() != nil {
					return cmp.Or(ctx.Err(), err)
				}
				if to := next(i); to != last {
					to.write(request)
					last = to
				}
				sent := time.Now()
				err := client.Do(request, response)
				if status := response.StatusCode(); err == nil && status/100 != 2 {
					err = fmt.Errorf("answer %d: %s", status, response.Body())
				}
				if err != nil {
					return err
				}
				latency = append(latency, milliseconds(time.Since(sent)))
			}
			return nil
		})
	}
	err := group.Wait()
	total.accepted, total.took = len(total.latency), time.Since(started)
	return total, err
}

func (c closed) enter(timed context.Context) error {
	if c.admit == nil {
		return nil
	}
	if err := c.admit(timed); timed.Err() == nil {
		return err
	}
	return nil
}

func (t *target) write(request *fasthttp.Request) {
	request.SetRequestURI(t.url)
	request.Header.Set("Authorization", "Bearer "+t.key)
	if t.body != nil {
		request.Header.SetMethod(fasthttp.MethodPost)
		request.Header.SetContentType("application/json")
		request.SetBodyRaw(t.body)
	}
}

func (s system) submit(c closed) load { return must(c.submit(s.ctx, s.target)) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
