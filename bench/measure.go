package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
)

// sample is what one system did in one round.
type sample struct {
	accepted      float64       // per second, workers stopped
	submit50      time.Duration // of an accepted request
	submit99      time.Duration
	finished      float64       // per second, from the first request to the last report
	path50        time.Duration // from the job's creation to its report
	path99        time.Duration
	cpu           float64 // seconds per 1,000 finished jobs: api, worker, Postgres, Redis
	cpuGenerator  float64 // the same of the load generator
	finishedTotal int
}

func (m sample) String() string {
	return fmt.Sprintf("accepted %.0f/s (p50 %v, p99 %v), finished %.0f/s (p50 %v, p99 %v), CPU %.3f s per 1,000 jobs (+ %.3f s generator)",
		m.accepted, m.submit50.Round(10*time.Microsecond), m.submit99.Round(10*time.Microsecond),
		m.finished, m.path50.Round(time.Millisecond), m.path99.Round(time.Millisecond), m.cpu, m.cpuGenerator)
}

// measure takes one system through both phases, each on a fresh database.
func (s *stack) measure(ctx context.Context, o options, start func(context.Context, *database, options) (system, error)) (sample, error) {
	var m sample
	err := s.phase(ctx, o, start, func(_ *database, sys system) error {
		load, err := generate(ctx, sys, o)
		m.accepted = float64(load.accepted) / load.took.Seconds()
		m.submit50, m.submit99 = load.quantile(50), load.quantile(99)
		return err
	})
	if err != nil {
		return m, err
	}
	err = s.phase(ctx, o, start, func(d *database, sys system) error {
		worker, err := sys.startWorker()
		if err != nil {
			return errors.Join(err, worker.stop())
		}
		defer func() { _ = worker.stop() }() // measured already; a failure shows in the figures
		return s.wholePath(ctx, o, d, sys, worker, &m)
	})
	return m, err
}

func (s *stack) phase(ctx context.Context, o options, start func(context.Context, *database, options) (system, error), body func(*database, system) error) error {
	d, err := s.newDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = d.conn.Close(ctx) }()
	sys, err := start(ctx, d, o)
	if err != nil {
		return errors.Join(err, sys.api.stop())
	}
	return errors.Join(body(d, sys), sys.api.stop())
}

// wholePath offers load for a while and waits until every accepted job has
// its report.
func (s *stack) wholePath(ctx context.Context, o options, d *database, sys system, worker *program, m *sample) error {
	trees := []int{sys.api.cmd.Process.Pid, worker.cmd.Process.Pid, s.servers.Postgres.PID(), s.servers.Redis.PID()}
	before, own := cpuSeconds(trees...), ownCPU()
	started := time.Now()
	load, err := generate(ctx, sys, o)
	if err != nil {
		return err
	}
	generator := ownCPU() - own
	done := 0
	for limit := time.Now().Add(10 * o.duration); done < load.accepted; {
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d jobs have finished; giving up", done, load.accepted)
		}
		time.Sleep(50 * time.Millisecond)
		if err := d.conn.QueryRow(ctx, "SELECT count(*) FROM reports").Scan(&done); err != nil {
			return err
		}
	}
	took := time.Since(started)
	thousands := float64(done) / 1000
	m.finished, m.finishedTotal = float64(done)/took.Seconds(), done
	m.cpu, m.cpuGenerator = (cpuSeconds(trees...)-before)/thousands, generator/thousands
	var p50, p99 float64
	err = d.conn.QueryRow(ctx, `SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t), percentile_cont(0.99) WITHIN GROUP (ORDER BY t) FROM
		(SELECT extract(epoch FROM r.finished_at - j.created_at)::float8 AS t FROM reports r JOIN jobs j USING (job_id)) x`).Scan(&p50, &p99)
	m.path50, m.path99 = time.Duration(p50*float64(time.Second)), time.Duration(p99*float64(time.Second))
	return err
}

// load is what a run of the generator saw.
type load struct {
	accepted int
	took     time.Duration
	latency  *hdrhistogram.Histogram // microseconds
}

func (l load) quantile(q float64) time.Duration {
	return time.Duration(l.latency.ValueAtQuantile(q)) * time.Microsecond
}

var body = []byte(`{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`)

// generate submits jobs from concurrent clients for the given time, each as
// fast as it is answered. Anything but 202 is an error.
func generate(ctx context.Context, sys system, o options) (load, error) {
	client := &fasthttp.Client{MaxConnsPerHost: o.clients, ReadTimeout: 20 * time.Second}
	total := load{latency: newHistogram()}
	var mu sync.Mutex
	var group sync.WaitGroup
	var failure error
	started := time.Now()
	for range o.clients {
		group.Go(func() {
			accepted, latency, err := submitUntil(ctx, client, sys, started.Add(o.duration))
			mu.Lock()
			defer mu.Unlock()
			total.accepted += accepted
			total.latency.Merge(latency)
			failure = errors.Join(failure, err)
		})
	}
	group.Wait()
	total.took = time.Since(started)
	return total, failure
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

func submitUntil(ctx context.Context, client *fasthttp.Client, sys system, end time.Time) (int, *hdrhistogram.Histogram, error) {
	latency := newHistogram()
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	request.SetRequestURI(sys.url)
	request.Header.SetMethod(fasthttp.MethodPost)
	request.Header.SetContentType("application/json")
	request.Header.Set("Authorization", "Bearer "+sys.key)
	request.SetBodyRaw(body)
	accepted := 0
	for time.Now().Before(end) && ctx.Err() == nil {
		sent := time.Now()
		if err := client.Do(request, response); err != nil {
			return accepted, latency, err
		}
		if response.StatusCode() != fasthttp.StatusAccepted {
			return accepted, latency, fmt.Errorf("answer %d: %s", response.StatusCode(), response.Body())
		}
		if err := latency.RecordValue(max(1, time.Since(sent).Microseconds())); err != nil {
			return accepted, latency, err
		}
		accepted++
	}
	return accepted, latency, ctx.Err()
}

// ownCPU is the user and system time of this process alone.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// cpuSeconds sums user and system time of processes and their descendants,
// those included that have ended and were waited for. It reads /proc.
func cpuSeconds(roots ...int) float64 {
	const ticks = 100 // USER_HZ, the same on every Linux that matters here
	children := map[int][]int{}
	times := map[int]float64{}
	entries, _ := os.ReadDir("/proc") // elsewhere there is none, and the figure is 0
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		for _, field := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseFloat(field, 64)
			times[pid] += n / ticks
		}
	}
	sum := 0.0
	for queue := roots; len(queue) > 0; queue = queue[1:] {
		sum += times[queue[0]]
		queue = append(queue, children[queue[0]]...)
	}
	return sum
}
