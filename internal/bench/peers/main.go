// Command peers runs the job systems that the bench compares ForgeRun with, at their own defaults: River, a library on Postgres,
// and asynq, a library on Redis. Neither has HTTP or keeps the history of a job. This is a separate module, so the service does not
// depend on them.
//
// It prints a line of JSON for each phase: the number of jobs, the time, and the CPU time of this process, both in seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const usage = `Usage: peers [options] river|asynq ADDRESS PHASE...

ADDRESS is that of an empty database of Postgres, or of Redis. Phases: insert (one
by one), batch (1,000 at a time by 4 producers), drain (what those left is worked
off), sustained (inserted and worked off at the same time).

`

var (
	jobs      = flag.Int("jobs", 20_000, "jobs of a phase")
	producers = flag.Int("producers", 32, "goroutines that insert one by one")
	workers   = flag.Int("workers", 100, "jobs at once")
)

// payload is what each job has: 150 bytes.
var payload = strings.Repeat("x", 150)

const (
	batchSize      = 1000
	batchProducers = 4
)

// peer is one of the systems.
type peer interface {
	insert(ctx context.Context) error
	insertBatch(ctx context.Context) error
	// work starts workers that call done for each job; stop waits for their end.
	work(ctx context.Context, workers int, done func()) (stop func(context.Context) error, err error)
	close()
}

func main() {
	flag.Usage = func() {
		_, _ = fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		flag.Usage()
		return errors.New("a system, an address and a phase are needed")
	}
	start, known := map[string]func(context.Context, string) (peer, error){"river": newRiver, "asynq": newAsynq}[args[0]]
	if !known {
		return fmt.Errorf("there is no system %q", args[0])
	}
	p, err := start(ctx, args[1])
	if err != nil {
		return err
	}
	defer p.close()
	left := 0 // jobs that were not executed yet
	for _, phase := range args[2:] {
		began, cpu := time.Now(), ownCPU()
		n, err := do(ctx, p, phase, &left)
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

// do does one phase, of so many jobs.
func do(ctx context.Context, p peer, phase string, left *int) (n int, err error) {
	switch phase {
	case "insert":
		*left += *jobs
		return *jobs, repeat(ctx, *producers, *jobs, p.insert)
	case "batch":
		n = *jobs / batchSize * batchSize
		*left += n
		return n, repeat(ctx, batchProducers, n/batchSize, p.insertBatch)
	case "drain":
		n, *left = *left, 0
		return n, working(ctx, p, n, func() error { return nil })
	case "sustained":
		return *jobs, working(ctx, p, *jobs, func() error { return repeat(ctx, *producers, *jobs, p.insert) })
	}
	return 0, errors.New("there is no such phase")
}

// working runs workers while do inserts jobs, until so many are done. What the workers
// take to stop is counted: they finish what they hold.
func working(ctx context.Context, p peer, jobs int, do func() error) error {
	var done atomic.Int64
	finished := make(chan struct{})
	stop, err := p.work(ctx, *workers, func() {
		if done.Add(1) == int64(jobs) {
			close(finished)
		}
	})
	if err != nil {
		return err
	}
	err = do()
	if err == nil {
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
		group.Go(func() error {
			for begun.Add(1) <= int64(times) {
				if err := do(ctx); err != nil {
					return err
				}
			}
			return nil
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
