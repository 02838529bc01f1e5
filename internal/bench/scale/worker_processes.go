package scale

import (
	"context"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

// Targets of several worker processes, in terms of one.
const (
	twoTarget    = 1.9
	fourTarget   = 3.6
	processSlots = 16
	processScale = 0.025 // PAYLOAD_SMALL takes 2 s: so 50 ms
	processJobs  = 150_000
)

// WorkerProcesses counts what one, two and four worker processes finish of a backlog
// of jobs that take 50 ms. A process is bounded by its slots, and not by a core.
func WorkerProcesses(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	o := l.Options.With(fmt.Sprintf("FORGERUN_TIME_SCALE=%g", processScale), fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", processSlots))
	counts := []int{1, 2, 4}
	rates := map[int][]float64{}
	err := withSeeded(ctx, l, seedQueuedJobs, l.Options.Jobs(processJobs), func(d *lab.Database) error {
		return lab.Serve(ctx, d, o, l.StartService, func(sys lab.System) error {
			lab.Pause(ctx, warmup) // the relay fills the queue
			return lab.InTurns(l.Options.Rounds, len(counts), func(_, side int) error {
				n := counts[side]
				return lab.WithWorkers(sys, n, func(workers []*lab.Program) error {
					before := l.Usage(sys, workers...)
					rate, err := finish(ctx, l, d)
					rates[n] = append(rates[n], rate)
					l.Printf("%d worker processes: finished %.0f/s; %v", n, rate, l.Usage(sys, workers...).Since(before))
					return err
				})
			})
		})
	})
	if err != nil {
		return nil, err
	}
	var list []figures.Figure
	for i, target := range []float64{twoTarget, fourTarget} {
		n := counts[i+1]
		ratio, note := figures.CompareValues(rates[n], rates[1], "%.0f/s")
		note += fmt.Sprintf("; %d slots each, jobs of 50 ms: %.0f/s at most", processSlots, float64(n*processSlots)/0.05)
		list = append(list, figures.AtLeast(fmt.Sprintf("%d worker processes, finished/s", n), target, ratio, "x one process", note))
	}
	return list, nil
}

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

// Running has one worker process run 10,000 jobs that just wait, and measures what it
// costs to hold them.
func Running(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	jobs := l.Options.Jobs(runningJobs)
	o := l.Options.With(fmt.Sprintf("FORGERUN_TIME_SCALE=%d", runningScale),
		fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", jobs), "FORGERUN_SHUTDOWN_GRACE=0s")
	err = l.Phase(ctx, o, l.StartService, func(d *lab.Database, sys lab.System) error {
		d.Client = sys.Client
		if err := seedQueuedJobs(ctx, d, jobs); err != nil {
			return err
		}
		without := l.Rest(ctx, runningWindow, sys)
		return lab.WithWorker(sys, func(worker *lab.Program) error {
			began := time.Now()
			if err := allRunning(ctx, d, jobs); err != nil {
				return err
			}
			l.Printf("%d jobs RUNNING after %v", jobs, time.Since(began).Round(time.Second))
			with := l.Rest(ctx, runningWindow, sys, worker)
			now, peak, err := lab.ProcessMemory(worker.PID())
			if err != nil {
				return err
			}
			if err := allRunning(ctx, d, jobs); err != nil { // still
				return err
			}
			l.Printf("with them: %s; without worker: %s", with.PerCore(), without.PerCore())
			list = runningFigures(jobs, now, peak, with.CoreShare(), without.CoreShare())
			return ctx.Err()
		})
	})
	return list, err
}

func runningFigures(jobs int, now, peak, with, without float64) []figures.Figure {
	name := short(jobs) + " jobs RUNNING in one worker process: "
	return []figures.Figure{
		figures.AtMost(name+"resident memory", runningMemoryTarget, now, "MB", fmt.Sprintf("at most %.0f so far", peak)),
		figures.AtMost(name+"CPU", runningCPUTarget, with-without, "% of a core",
			fmt.Sprintf("worker, Postgres and Redis over %v, %.2f less %.2f without worker; jobs of 1,000 s", runningWindow, with, without)),
	}
}

// allRunning waits for the jobs to run, and leaves Postgres nothing to do about
// how they came there.
func allRunning(ctx context.Context, d *lab.Database, jobs int) error {
	err := lab.Poll(ctx, 2*time.Minute, "all jobs RUNNING", func() (bool, error) {
		n, err := d.Number(ctx, "SELECT count(*) FROM jobs WHERE state = 'RUNNING'")
		return int(n) == jobs, err
	})
	if err != nil {
		return err
	}
	return finishSeeding(ctx, d, nil)
}
