package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Targets of several worker processes, in terms of one.
const (
	twoTarget  = 1.9
	fourTarget = 3.7
	scaleSlots = 16
	scaleTime  = 0.025 // PAYLOAD_SMALL takes 2 s: so 50 ms
	scaleJobs  = 150_000
)

// scaleWorkers counts what one, two and four worker processes finish of a backlog
// of jobs that take 50 ms. A process is bounded by its slots, and not by a core.
func scaleWorkers(ctx context.Context, l *lab) ([]figure, error) {
	env := []string{fmt.Sprintf("FORGERUN_TIME_SCALE=%g", scaleTime), fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", scaleSlots)}
	counts := []int{1, 2, 4}
	rates := map[int][]float64{}
	d, key, err := l.seededDatabase(ctx, func(d *database, client uuid.UUID) error {
		return seedQueuedJobs(ctx, d, client, seeded(scaleJobs))
	})
	if d != nil {
		defer func() { _ = l.drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	}
	if err != nil {
		return nil, err
	}
	err = l.serve(ctx, d, key, env, func(sys system) error {
		pause(ctx, warming) // the relay fills the queue
		for round := range l.o.rounds {
			for turn := range counts {
				if round%2 == 1 {
					turn = len(counts) - 1 - turn
				}
				n := counts[turn]
				err := employ(sys, n, func(workers []*program) error {
					before := l.usage(sys, workers...)
					rate, err := l.finish(ctx, d)
					rates[n] = append(rates[n], rate)
					l.say("%d worker processes: finished %.0f/s; %v", n, rate, l.usage(sys, workers...).since(before))
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	note := func(n int) string {
		return fmt.Sprintf("%.0f/s to %.0f/s; %d slots each, jobs of 50 ms: %.0f/s at most", median(rates[n]), median(rates[1]), scaleSlots,
			float64(n*scaleSlots)/(50*time.Millisecond).Seconds())
	}
	return []figure{
		atLeast("2 worker processes, finished/s", twoTarget, median(ratios(rates[2], rates[1])), "x one process", note(2)),
		atLeast("4 worker processes, finished/s", fourTarget, median(ratios(rates[4], rates[1])), "x one process", note(4)),
	}, nil
}
