// Command peers runs the job systems that the bench compares with ForgeRun: River (Postgres) and asynq (Redis). Neither has an HTTP API or
// keeps a job's history. This is a separate module, so ForgeRun does not depend on River and asynq.
//
// Usage: peers river|asynq ADDRESS PHASE...
//
// ADDRESS is the address of an empty Postgres database or of Redis. Phases: insert (32 producers insert single jobs), batch (4 producers
// insert 1,000 jobs at a time), drain (run the inserted jobs), sustained (insert and run jobs at the same time). Each phase prints a line
// of JSON: the number of jobs, and the time in seconds.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// The file internal/bench/peers.go has copies of these numbers.
const (
	jobs           = 20_000 // in each phase
	producers      = 32
	workers        = 100
	batchSize      = 1000
	batchProducers = 4
)

var payload = strings.Repeat("x", 150) // of each job

type peer struct {
	insert, insertBatch func(context.Context) error
	// work starts workers, which call `done` after each job. `stop` returns when the workers have ended.
	work func(ctx context.Context, done func()) (stop func(context.Context) error, err error)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	start := map[string]func(context.Context, string) (peer, error){"river": newRiver, "asynq": newAsynq}
	if len(args) < 3 || start[args[0]] == nil {
		return errors.New("usage: peers river|asynq ADDRESS PHASE")
	}
	p, err := start[args[0]](ctx, args[1])
	if err != nil {
		return err
	}
	insert := func() error { return repeat(ctx, producers, jobs, p.insert) }
	phases := map[string]func() error{
		"insert":    insert,
		"batch":     func() error { return repeat(ctx, batchProducers, jobs/batchSize, p.insertBatch) },
		"drain":     func() error { return p.working(ctx, func() error { return nil }) },
		"sustained": func() error { return p.working(ctx, insert) },
	}
	for _, phase := range args[2:] {
		began := time.Now()
		if err := phases[phase](); err != nil {
			return fmt.Errorf("%s: %w", phase, err)
		}
		fields := map[string]any{"phase": phase, "jobs": jobs, "took": time.Since(began).Seconds()}
		if err := json.NewEncoder(os.Stdout).Encode(fields); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) working(ctx context.Context, do func() error) error {
	var done atomic.Int64
	finished := make(chan struct{})
	stop, err := p.work(ctx, func() {
		if done.Add(1) == jobs {
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

func repeat(ctx context.Context, atOnce, times int, do func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for range times {
		group.Go(func() error { return do(ctx) })
	}
	return group.Wait()
}
