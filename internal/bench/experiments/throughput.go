// Package experiments measures the service on small tables: its throughput, its
// latencies, what it does while Redis is in trouble, and its webhooks; and the
// simulator's load generator. Package scale has those with many rows.
package experiments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/bench/yardstick"
)

// Targets of throughput.
const (
	acceptedTarget = 7.0  // times the naive path
	pgbenchTarget  = 1.2  // times one transaction for each job
	finishedTarget = 5.0  // times the naive path
	cpuTarget      = 0.40 // seconds per 1,000 jobs
	cpuShareTarget = 0.22 // of the naive path's
)

// sample is what one system did in one round.
type sample struct {
	accepted loadgen.Load // workers stopped
	usage    lab.Usage
	path     lab.Path
}

func acceptedRate(m sample) float64 { return m.accepted.Rate() }
func finishedRate(m sample) float64 { return m.path.Finished }
func cpuPerJob(m sample) float64    { return m.path.CPU() }

func (m sample) String() string {
	return fmt.Sprintf("accepted %.0f/s (p50 %v, p99 %v); %v\n    finished %.0f/s (p50 %v, p99 %v), CPU %.3f s per 1,000 jobs; %v",
		m.accepted.Rate(), loadgen.Round(m.accepted.Quantile(50)), loadgen.Round(m.accepted.Quantile(99)), m.usage,
		m.path.Finished, m.path.P50.Round(time.Millisecond), m.path.P99.Round(time.Millisecond), m.path.CPU(), m.path.Usage)
}

// Throughput measures the service, the naive path and pgbench.
func Throughput(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	names, starters := []string{"forgerun", "naive"}, []lab.Starter{l.StartService, yardstick.StartNaive}
	var samples [2][]sample
	var plain []float64
	err := lab.InTurns(l.Options.Rounds, 3, func(round, side int) error {
		if side == len(samples) {
			rate, err := yardstick.Pgbench(ctx, l)
			l.Printf("round %d of %d, pgbench, one transaction for each job: %.0f/s", round+1, l.Options.Rounds, rate)
			plain = append(plain, rate)
			return err
		}
		m, err := measure(ctx, l, l.Options, starters[side])
		if err != nil {
			return fmt.Errorf("%s: %w", names[side], err)
		}
		l.Printf("round %d of %d, %s: %s", round+1, l.Options.Rounds, names[side], m)
		samples[side] = append(samples[side], m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.MaxAccepted = figures.Median(figures.Column(samples[0], acceptedRate))
	return throughputFigures(samples[0], samples[1], plain), nil
}

// throughputFigures are medians of the rounds' ratios.
func throughputFigures(service, naive []sample, plain []float64) []figures.Figure {
	accepted, acceptedNote := figures.Compare(service, naive, acceptedRate, "%.0f/s")
	against, againstNote := figures.CompareValues(figures.Column(service, acceptedRate), plain, "%.0f/s")
	finished, finishedNote := figures.Compare(service, naive, finishedRate, "%.0f/s")
	cpu, cpuNote := figures.Compare(service, naive, cpuPerJob, "%.3f s")
	p99 := func(s sample) time.Duration { return loadgen.Round(s.accepted.Quantile(99)) }
	acceptedNote += fmt.Sprintf(", p99 %v to %v", p99(service[0]), p99(naive[0]))
	return []figures.Figure{
		figures.AtLeast("accepted/s, 64 clients, workers stopped, against the naive path", acceptedTarget, accepted, "x naive", acceptedNote),
		figures.AtLeast("accepted/s against one transaction for each job (pgbench)", pgbenchTarget, against, "x pgbench", againstNote),
		figures.AtLeast("finished/s, sustained, against the naive path", finishedTarget, finished, "x naive", finishedNote),
		figures.AtMost("CPU per 1,000 jobs, all processes", cpuTarget, figures.Median(figures.Column(service, cpuPerJob)), "s",
			"the load generator aside"),
		figures.AtMost("CPU per 1,000 jobs against the naive path", cpuShareTarget, cpu, "x naive", cpuNote),
	}
}

// measure takes one system through both phases, each on a fresh database.
func measure(ctx context.Context, l *lab.Lab, o lab.Options, start lab.Starter) (m sample, err error) {
	err = l.Phase(ctx, o, start, func(_ *lab.Database, sys lab.System) (err error) {
		warmup := loadgen.Closed{Clients: o.Clients, During: o.Duration / 8}
		if _, err := warmup.Submit(ctx, sys.Target); err != nil {
			return err
		}
		before := l.Usage(sys)
		m.accepted, err = loadgen.Closed{Clients: o.Clients, During: o.Duration}.Submit(ctx, sys.Target)
		m.usage = l.Usage(sys).Since(before)
		return err
	})
	if err != nil {
		return m, err
	}
	err = l.Phase(ctx, o, start, func(d *lab.Database, sys lab.System) error {
		return lab.WithWorker(sys, func(worker *lab.Program) (err error) {
			m.path, err = l.Sustained(ctx, o, d, sys, worker)
			return err
		})
	})
	return m, err
}

const (
	halfRateTarget = 10.0 // ms
	// openConnections is how many requests of an open loop can be in flight: far more
	// than there ever are unless the service falls behind.
	openConnections = 256
)

// HalfRate submits at half of the maximum rate, in an open loop with the workers
// stopped, as for the maximum.
func HalfRate(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	if l.MaxAccepted == 0 { // no experiment before has measured it
		o := l.Options
		o.Duration = min(o.Duration, 4*time.Second)
		m, err := measure(ctx, l, o, l.StartService)
		if err != nil {
			return nil, err
		}
		l.Printf("maximum rates: %s", m)
		l.MaxAccepted = m.accepted.Rate()
	}
	rate := l.MaxAccepted / 2
	var p50, p99 []float64 // from when a request is due
	err := l.Phase(ctx, l.Options, l.StartService, func(_ *lab.Database, sys lab.System) error {
		loop := loadgen.OpenLoop{Rate: rate, During: time.Second, Connections: openConnections}
		_, _ = loop.Submit(ctx, sys.Target) // the warm-up
		loop.During = l.Options.Duration / 2
		for range max(3, l.Options.Rounds) {
			before := l.Usage(sys)
			got, err := loop.Submit(ctx, sys.Target)
			l.Printf("%.0f/s: %v; %v", rate, &got, l.Usage(sys).Since(before))
			if err != nil {
				return err
			}
			p50 = append(p50, loadgen.Milliseconds(got.FromDue.Quantile(50, http.StatusAccepted)))
			p99 = append(p99, loadgen.Milliseconds(got.FromDue.Quantile(99, http.StatusAccepted)))
		}
		return nil
	})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return []figures.Figure{figures.AtMost("submit p99 at half of the maximum rate, open loop", halfRateTarget, figures.Median(p99), "ms",
		fmt.Sprintf("at %.0f/s; p50 %.2f ms", rate, figures.Median(p50)))}, nil
}
