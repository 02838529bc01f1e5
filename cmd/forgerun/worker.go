package main

import (
	"context"
	"fmt"
	"os"

	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	repojobs "github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/tasks/consumer"
)

// workerStore renews leases over a separate connection, because an exhausted pool must not end leases.
type workerStore struct {
	*repo.Store
	*repojobs.Leases
}

func (p *process) startWorker(ctx context.Context) (failed <-chan error, err error) {
	limit, leases := p.cfg.ExecutionLimit(), p.store.NewLeases()
	rescuer := &rescue.Rescuer{
		Store: p.store, Queue: p.notifier, Completer: p.completer, Backoff: p.cfg.Backoff, Metrics: p.metrics, Log: p.log,
	}
	w := worker.New(worker.Config{
		Name: workerName(), Concurrency: p.cfg.WorkerConcurrency, Lease: p.cfg.LeaseTimeout, Heartbeat: p.cfg.heartbeat(),
		Limit: limit, Backoff: p.cfg.Backoff, Clock: p.clock,
	}, worker.Deps{
		Store: workerStore{p.store, leases}, Queue: p.notifier, Completer: p.completer, GiveBack: rescuer.GiveBack,
		Runner: work.New(work.Config{TimeScale: p.cfg.TimeScale, Limit: limit}), Metrics: p.metrics, Log: p.log,
	})
	p.worker.Store(w)
	fetching := consumer.NewJobs(p.redis, p.consumer(p.cfg.WorkerConcurrency), w.Handle, w.Canceled)
	return nil, p.parts.Start(ctx,
		lifecycle.Close("worker leases", leases.Close),
		p.loop("worker", w.Run),
		p.loop("probes of refused work", w.ProbeRefused),
		lifecycle.Part{
			Name: "job consumer", Grace: p.cfg.ShutdownGrace,
			Start: func(context.Context) error {
				defer p.pauses.Follow(func(now job.Pauses) { fetching.Hold(w.Stopped(now)) })
				return fetching.Start(context.Background())
			},
			Stop: func(ctx context.Context) error {
				fetching.Quiet()
				w.Drain(ctx)
				return withOwnTimeout(fetching.Stop)
			},
		},
	)
}

func (p *process) consumer(concurrency int) consumer.Config {
	return consumer.Config{
		Concurrency: concurrency, ShutdownTimeout: closeGrace, Clock: p.due,
		TaskCheckInterval: p.cfg.TaskCheckInterval, DelayedTaskCheckInterval: p.cfg.DelayedTaskCheckInterval,
	}
}

// withOwnTimeout runs `stop` with a new time limit, because the grace period may have passed.
func withOwnTimeout(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	return stop(ctx)
}

func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}
