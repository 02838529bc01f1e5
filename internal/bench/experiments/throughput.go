// Package experiments measures the service: its throughput, what a single job waits for, webhook
// deliveries, the same jobs through other systems, and a table with many rows.
package experiments

import (
	"context"
	"fmt"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

// throughput is what one program did in one round.
type throughput struct {
	accepted loadgen.Load // workers stopped
	usage    lab.Usage
	path     lab.Path
}

func (t throughput) p99() float64 { return loadgen.Quantile(t.accepted.Latency, 99) }

func (t throughput) String() string {
	return fmt.Sprintf("accepted %.0f/s (p50 %.1f ms, p99 %.1f ms); %v\n    %v",
		t.accepted.Rate(), loadgen.Quantile(t.accepted.Latency, 50), t.p99(), t.usage, t.path)
}

// Throughput measures submission with the workers stopped, and the whole path.
func Throughput(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	got, err := figures.InTurns(l.Rounds, programs(ctx, l, measureThroughput)...)
	if err != nil {
		return nil, err
	}
	return []figures.Figure{
		figures.New(fmt.Sprintf("Accepted one by one, %d clients, jobs/s", lab.Clients), got,
			func(t throughput) float64 { return t.accepted.Rate() }),
		figures.New("Time to the answer, p99, ms", got, throughput.p99),
		figures.New("Submitted and finished at the same time, jobs/s", got, func(t throughput) float64 { return t.path.Finished }),
		figures.New("CPU of that, seconds for 1,000 jobs", got, func(t throughput) float64 { return t.path.CPU() }),
	}, nil
}

// programs are the sides of an experiment that measures each program in the same way.
func programs[T any](
	ctx context.Context, l *lab.Lab, measure func(context.Context, *lab.Lab, lab.Service) (T, error),
) (sides []figures.Side[T]) {
	for _, s := range l.Programs {
		sides = append(sides, figures.Side[T]{Name: s.Name, Measure: func() (T, error) { return measure(ctx, l, s) }})
	}
	return sides
}

// measureThroughput takes a program through both phases, each on a fresh database.
func measureThroughput(ctx context.Context, l *lab.Lab, s lab.Service) (t throughput, err error) {
	err = l.Phase(ctx, s, func(sys lab.System) (err error) {
		if _, err := (loadgen.Closed{Clients: lab.Clients, During: l.Warmup()}).Submit(ctx, sys.Target); err != nil {
			return err
		}
		before := l.Usage(sys, nil)
		t.accepted, err = loadgen.Closed{Clients: lab.Clients, During: l.Duration}.Submit(ctx, sys.Target)
		t.usage = l.Usage(sys, nil).Since(before)
		return err
	})
	if err != nil {
		return t, err
	}
	err = l.Phase(ctx, s, func(sys lab.System) error {
		return sys.WithWorker(ctx, func(worker *stack.Process) (err error) {
			t.path, err = l.Sustained(ctx, sys, worker)
			return err
		})
	})
	return t, err
}
