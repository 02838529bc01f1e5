// Command peers runs other job systems that the bench compares ForgeRun with, at their
// own defaults: River, a library over Postgres, and asynq, a library over Redis. Neither
// has HTTP or keeps the history of a job. It is a module of its own, so that they are
// no dependencies of the service.
//
// It prints one line of JSON for each phase: how many jobs, in which time, and what CPU
// time this process took, both in seconds.
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

ADDRESS is that of an empty database of Postgres, or of Redis. Phases:

  insert     jobs are inserted one by one, nobody works
  batch      jobs are inserted 1,000 at a time by 4 producers, nobody works
  drain      what the phases before left is worked off
  sustained  jobs are inserted and worked off at the same time

Options:
`

// options of a run.
type options struct {
	jobs, producers, workers int
}

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

// measured is what is printed of a phase.
type measured struct {
	Phase string  `json:"phase"`
	Jobs  int     `json:"jobs"`
	Took  float64 `json:"took"` // seconds
	CPU   float64 `json:"cpu"`  // seconds of this process
}

func main() {
	o := options{}
	flag.IntVar(&o.jobs, "jobs", 20_000, "jobs of a phase")
	flag.IntVar(&o.producers, "producers", 32, "goroutines that insert one by one")
	flag.IntVar(&o.workers, "workers", 100, "jobs at once")
	flag.Usage = func() {
		_, _ = fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func (o options) run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		flag.Usage()
		return errors.New("a system, an address and a phase are needed")
	}
	starters := map[string]func(context.Context, string) (peer, error){"river": newRiver, "asynq": newAsynq}
	start, known := starters[args[0]]
	if !known {
		return fmt.Errorf("there is no system %q", args[0])
	}
	p, err := start(ctx, args[1])
	if err != nil {
		return err
	}
	defer p.close()
	left := 0 // jobs that nobody has worked off
	for _, phase := range args[2:] {
		m, err := o.phase(ctx, p, phase, &left)
		if err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
			return err
		}
	}
	return nil
}

// phase does one and measures it.
func (o options) phase(ctx context.Context, p peer, name string, left *int) (m measured, err error) {
	m = measured{Phase: name, Jobs: o.jobs}
	began, cpu := time.Now(), ownCPU()
	switch name {
	case "insert":
		err = repeat(ctx, o.producers, o.jobs, p.insert)
		*left += o.jobs
	case "batch":
		err = repeat(ctx, batchProducers, o.jobs/batchSize, p.insertBatch)
		m.Jobs = o.jobs / batchSize * batchSize
		*left += m.Jobs
	case "drain":
		m.Jobs, *left = *left, 0
		err = o.working(ctx, p, m.Jobs, func() error { return nil })
	case "sustained":
		err = o.working(ctx, p, o.jobs, func() error { return repeat(ctx, o.producers, o.jobs, p.insert) })
	default:
		err = errors.New("there is no such phase")
	}
	m.Took, m.CPU = time.Since(began).Seconds(), ownCPU()-cpu
	return m, err
}

// working runs workers while do inserts jobs, until so many are done. What the workers
// take to stop is counted: they finish what they hold.
func (o options) working(ctx context.Context, p peer, jobs int, do func() error) error {
	var done atomic.Int64
	finished := make(chan struct{})
	stop, err := p.work(ctx, o.workers, func() {
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
