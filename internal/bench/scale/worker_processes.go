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
	fourTarget   = 3.7
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
		ratio, note := figures.Compare(rates[n], rates[1], "%.0f/s")
		note += fmt.Sprintf("; %d slots each, jobs of 50 ms: %.0f/s at most", processSlots, float64(n*processSlots)/(50*time.Millisecond).Seconds())
		list = append(list, figures.AtLeast(fmt.Sprintf("%d worker processes, finished/s", n), target, ratio, "x one process", note))
	}
	return list, nil
}
