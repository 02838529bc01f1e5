package main

import (
	"context"
	"fmt"
	"time"
)

// Targets of many jobs that run in one worker process.
const (
	runningJobs         = 10_000
	runningMemoryTarget = 150.0 // MB
	runningCPUTarget    = 2.0   // % of a core
	// runningScale makes a job of 2 s take 1,000: it reports progress every 100, and
	// none of that falls into the window.
	runningScale  = 500
	runningWindow = 20 * time.Second
)

// scaleRunning has one worker process run 10,000 jobs that just wait, and measures
// what it costs to hold them.
func scaleRunning(ctx context.Context, l *lab) (figures []figure, err error) {
	jobs := seeded(runningJobs)
	o := l.o
	o.env = append(append([]string{}, o.env...), fmt.Sprintf("FORGERUN_TIME_SCALE=%d", runningScale),
		fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", jobs), "FORGERUN_SHUTDOWN_GRACE=0s")
	err = l.phase(ctx, o, l.startForgeRun, func(d *database, sys system) error {
		client, err := clientOf(ctx, d, sys.key)
		if err != nil {
			return err
		}
		if err := seedQueuedJobs(ctx, d, client, jobs); err != nil {
			return err
		}
		without := l.hold(ctx, sys)
		return employ(sys, 1, func(workers []*program) error {
			began := time.Now()
			if err := allRunning(ctx, d, jobs); err != nil {
				return err
			}
			l.say("%d jobs RUNNING after %v", jobs, time.Since(began).Round(time.Second))
			with := l.hold(ctx, sys, workers...)
			now, peak, err := processMemory(workers[0].pid())
			if err != nil {
				return err
			}
			if err := allRunning(ctx, d, jobs); err != nil { // still
				return err
			}
			l.say("with them: worker %.2f %% of a core, Postgres %.2f, Redis %.2f, api %.2f; without worker: Postgres %.2f, Redis %.2f, api %.2f", 100*with.worker/with.took,
				100*with.postgres/with.took, 100*with.redis/with.took, 100*with.api/with.took, 100*without.postgres/without.took, 100*without.redis/without.took, 100*without.api/without.took)
			figures = runningFigures(jobs, now, peak, with, without)
			return ctx.Err()
		})
	})
	return figures, err
}

func runningFigures(jobs int, now, peak float64, with, without usage) []figure {
	name := short(jobs) + " jobs RUNNING in one worker process: "
	return []figure{
		atMost(name+"resident memory", runningMemoryTarget, now, "MB", fmt.Sprintf("at most %.0f so far", peak)),
		atMost(name+"CPU", runningCPUTarget, with.coreShare()-without.coreShare(), "% of a core",
			fmt.Sprintf("worker, Postgres and Redis over %v, %.2f less %.2f without worker; jobs of 1,000 s", runningWindow, with.coreShare(), without.coreShare())),
	}
}

// hold is what a system needs while nothing changes.
func (l *lab) hold(ctx context.Context, sys system, workers ...*program) usage {
	pause(ctx, settling)
	before := l.usage(sys, workers...)
	pause(ctx, runningWindow)
	return l.usage(sys, workers...).since(before)
}

// allRunning waits for the jobs to run, and leaves Postgres nothing to do about
// how they came there.
func allRunning(ctx context.Context, d *database, jobs int) error {
	err := poll(ctx, 2*time.Minute, "all jobs RUNNING", func() (bool, error) {
		n, err := d.number(ctx, "SELECT count(*) FROM jobs WHERE state = 'RUNNING'")
		return int(n) == jobs, err
	})
	if err != nil {
		return err
	}
	return settle(ctx, d, nil)
}
