// Command peers runs the job systems that the bench compares ForgeRun with, at their own defaults: River, a library on Postgres,
// and asynq, a library on Redis. Neither has HTTP or keeps the history of a job. This is a separate module, so the service does not
// depend on them.
//
// Usage: peers river|asynq ADDRESS JOBS PRODUCERS WORKERS PHASE...
//
// ADDRESS is the address of an empty Postgres database or of Redis. Phases: insert (one by one), batch (1,000 at a time by 4 producers),
// drain (work off the inserted jobs), sustained (insert and work off at the same time). Each phase prints a line of JSON: the number of
// jobs, the time, and the CPU time of this process, both in seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

var payload = strings.Repeat("x", 150) // of each job

const (
	batchSize      = 1000
	batchProducers = 4
)

// peer is one of the systems.
type peer struct {
	insert, insertBatch func(context.Context) error
	// work starts workers that call done for each job; stop waits for their end.
	work func(ctx context.Context, workers int, done func()) (stop func(context.Context) error, err error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// plan is the work of the phases.
type plan struct {
	peer
	jobs, producers, workers int
	left                     int // jobs that were not executed yet
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) < 6 {
		return errors.New("usage: peers river|asynq ADDRESS JOBS PRODUCERS WORKERS PHASE")
	}
	var p plan
	for i, n := range []*int{&p.jobs, &p.producers, &p.workers} {
		if *n, err = strconv.Atoi(args[2+i]); err != nil {
			return err
		}
	}
	start, known := map[string]func(context.Context, string) (peer, error){"river": newRiver, "asynq": newAsynq}[args[0]]
	if !known {
		return fmt.Errorf("there is no system %q", args[0])
	}
	if p.peer, err = start(ctx, args[1]); err != nil {
		return err
	}
	for _, phase := range args[5:] {
		began, cpu := time.Now(), ownCPU()
		n, err := p.do(ctx, phase)
		if err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		fields := map[string]any{"phase": phase, "jobs": n, "took": time.Since(began).Seconds(), "cpu": ownCPU() - cpu}
		if err := json.NewEncoder(os.Stdout).Encode(fields); err != nil {
			return err
		}
	}
	return nil
}

// do does one phase and returns its number of jobs.
func (p *plan) do(ctx context.Context, phase string) (n int, err error) {
	insertAll := func() error { return repeat(ctx, p.producers, p.jobs, p.insert) }
	switch phase {
	case "insert":
		p.left += p.jobs
		return p.jobs, insertAll()
	case "batch":
		n = p.jobs / batchSize * batchSize
		p.left += n
		return n, repeat(ctx, batchProducers, n/batchSize, p.insertBatch)
	case "drain":
		n, p.left = p.left, 0
		return n, p.working(ctx, n, func() error { return nil })
	case "sustained":
		return p.jobs, p.working(ctx, p.jobs, insertAll)
	}
	return 0, errors.New("there is no such phase")
}

// working runs workers while do inserts jobs, until so many are done. The time that the workers take to stop counts too.
func (p *plan) working(ctx context.Context, jobs int, do func() error) error {
	var done atomic.Int64
	finished := make(chan struct{})
	stop, err := p.work(ctx, p.workers, func() {
		if done.Add(1) == int64(jobs) {
			close(finished)
		}
	})
	if err != nil {
		return err
	}
	if err = do(); err == nil {
		select {
		case <-finished:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return errors.Join(err, stop(context.WithoutCancel(ctx)))
}

// repeat does something so many times, several at once.
func repeat(ctx context.Context, atOnce, times int, do func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var begun atomic.Int64
	for range atOnce {
		group.Go(func() (err error) {
			for err == nil && begun.Add(1) <= int64(times) {
				err = do(ctx)
			}
			return err
		})
	}
	return group.Wait()
}

func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
