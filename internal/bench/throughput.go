package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Targets of throughput.
const (
	acceptedTarget = 7.0  // times the naive path
	pgbenchTarget  = 1.2  // times one transaction for each job
	finishedTarget = 5.0  // times the naive path
	cpuTarget      = 0.40 // seconds per 1,000 jobs
	cpuShareTarget = 0.22 // of the naive path's
)

// starter starts a system on a database.
type starter func(context.Context, *database, options) (system, error)

// sample is what one system did in one round.
type sample struct {
	accepted load // workers stopped
	usage    usage
	path     path
}

func (m sample) String() string {
	return fmt.Sprintf("accepted %.0f/s (p50 %v, p99 %v); %v\n    finished %.0f/s (p50 %v, p99 %v), CPU %.3f s per 1,000 jobs; %v",
		m.accepted.rate(), round(m.accepted.quantile(50)), round(m.accepted.quantile(99)), m.usage,
		m.path.finished, m.path.p50.Round(time.Millisecond), m.path.p99.Round(time.Millisecond), m.path.cpu(), m.path.usage)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// throughput measures the service, the naive path and pgbench in turns: a machine
// whose speed drifts is unfair to none of them.
func throughput(ctx context.Context, l *lab) ([]figure, error) {
	var real, naive []sample
	var plain []float64
	turns := []func() error{
		func() error { return l.sample(ctx, "forgerun", l.startForgeRun, &real) },
		func() error { return l.sample(ctx, "naive", l.startNaive, &naive) },
		func() error {
			rate, err := l.pgbench(ctx)
			l.say("pgbench, one transaction for each job: %.0f/s", rate)
			plain = append(plain, rate)
			return err
		},
	}
	for round := range l.o.rounds {
		l.say("round %d of %d", round+1, l.o.rounds)
		for turn := range turns {
			if round%2 == 1 {
				turn = len(turns) - 1 - turn
			}
			if err := turns[turn](); err != nil {
				return nil, err
			}
		}
	}
	l.maxAccepted, l.maxFinished = median(column(real, acceptedRate)), median(column(real, finishedRate))
	return throughputFigures(real, naive, plain), nil
}

func acceptedRate(m sample) float64 { return m.accepted.rate() }
func finishedRate(m sample) float64 { return m.path.finished }
func cpuPerJob(m sample) float64    { return m.path.cpu() }

// throughputFigures are medians of the rounds' ratios.
func throughputFigures(real, naive []sample, plain []float64) []figure {
	accepted, finished, cpu := column(real, acceptedRate), column(real, finishedRate), column(real, cpuPerJob)
	slow := column(naive, acceptedRate)
	note := fmt.Sprintf("%.0f/s to %.0f/s, p99 %v to %v", median(accepted), median(slow),
		round(real[0].accepted.quantile(99)), round(naive[0].accepted.quantile(99)))
	return []figure{
		atLeast("accepted/s, 64 clients, workers stopped, against the naive path", acceptedTarget, median(ratios(accepted, slow)), "x naive", note),
		atLeast("accepted/s against one transaction for each job (pgbench)", pgbenchTarget, median(ratios(accepted, plain)), "x pgbench",
			fmt.Sprintf("%.0f/s to %.0f/s", median(accepted), median(plain))),
		atLeast("finished/s, sustained, against the naive path", finishedTarget, median(ratios(finished, column(naive, finishedRate))), "x naive",
			fmt.Sprintf("%.0f/s to %.0f/s", median(finished), median(column(naive, finishedRate)))),
		atMost("CPU per 1,000 jobs, all processes", cpuTarget, median(cpu), "s", "the load generator aside"),
		atMost("CPU per 1,000 jobs against the naive path", cpuShareTarget, median(ratios(cpu, column(naive, cpuPerJob))), "x naive",
			fmt.Sprintf("%.3f s to %.3f s", median(cpu), median(column(naive, cpuPerJob)))),
	}
}

// sample measures a system once and adds what it did.
func (l *lab) sample(ctx context.Context, name string, start starter, samples *[]sample) error {
	measured, err := l.measure(ctx, l.o, start)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	l.say("%s: %s", name, measured)
	*samples = append(*samples, measured)
	return nil
}

// measure takes one system through both phases, each on a fresh database.
func (s *stack) measure(ctx context.Context, o options, start starter) (sample, error) {
	var m sample
	err := s.phase(ctx, o, start, func(_ *database, sys system) error {
		if _, err := generate(ctx, sys, o.clients, o.duration/8, nil); err != nil { // the warm-up
			return err
		}
		before := s.usage(sys)
		var err error
		m.accepted, err = generate(ctx, sys, o.clients, o.duration, nil)
		m.usage = s.usage(sys).since(before)
		return err
	})
	if err != nil {
		return m, err
	}
	err = s.phase(ctx, o, start, func(d *database, sys system) error {
		return withWorker(sys, func(worker *program) (err error) {
			m.path, err = s.sustained(ctx, o, d, sys, worker)
			return err
		})
	})
	return m, err
}

// withWorker runs body beside a worker process.
func withWorker(sys system, body func(*program) error) error {
	worker, err := sys.startWorker()
	if err != nil {
		return errors.Join(err, worker.stop())
	}
	return errors.Join(body(worker), worker.stop())
}

// phase runs body on a system with a database of its own.
func (s *stack) phase(ctx context.Context, o options, start starter, body func(*database, system) error) error {
	d, err := s.newDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	sys, err := start(ctx, d, o)
	if err != nil {
		return errors.Join(err, sys.api.stop())
	}
	return errors.Join(body(d, sys), sys.api.stop())
}
