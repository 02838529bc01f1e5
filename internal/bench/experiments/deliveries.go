package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	eventsPerJob   = 5   // created, queued, assigned, running, succeeded
	singleJobs     = 100 // one at a time, for the latency
	oneClientJobs  = 800 // of the client with one webhook
	manyClientJobs = 40  // of each client with ten webhooks
)

// The clients of each phase, with their endpoints.
var (
	oneClient    = []endpoints{{answering: 1}}
	manyClients  = slices.Repeat([]endpoints{{answering: 10}}, 5)
	mixedClients = []endpoints{
		{answering: 10}, {answering: 7, hanging: 3}, {answering: 7, hanging: 3}, {answering: 6, hanging: 4}, {hanging: 10},
	}
)

// deliveries is what one program did in one round.
type deliveries struct {
	p50, p99         float64 // ms from the event to its arrival
	one, many, mixed float64 // deliveries per second: to one endpoint, to 50, and to 30 of 50 while the others hang
	kept             float64 // part of their rate that the 30 keep
	deliverer, cpu   float64 // seconds for 1,000 deliveries to 50 endpoints: of the process, and with Postgres and Redis
}

func (d deliveries) String() string {
	return fmt.Sprintf("arrived after p50 %.1f ms, p99 %.1f ms; one endpoint %.0f/s; 50 endpoints %.0f/s, CPU %.3f s per 1,000, "+
		"with Postgres and Redis %.3f s; 30 beside 20 that hang %.0f/s", d.p50, d.p99, d.one, d.many, d.deliverer, d.cpu, d.mixed)
}

// Deliveries measures how fast and how soon webhook deliveries arrive, also while other endpoints hang.
func Deliveries(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	got, err := figures.InTurns(l.Rounds, programs(ctx, l, measureDeliveries)...)
	if err != nil {
		return nil, err
	}
	return []figures.Figure{
		figures.New("Webhook deliveries to one endpoint, per second", got, func(d deliveries) float64 { return d.one }),
		figures.New("To 50 endpoints of 5 clients, per second", got, func(d deliveries) float64 { return d.many }),
		figures.New("CPU of that, seconds of the deliverer for 1,000", got, func(d deliveries) float64 { return d.deliverer }),
		figures.New("CPU of that, with Postgres and Redis", got, func(d deliveries) float64 { return d.cpu }),
		figures.New("To 30 of 50 endpoints while 20 hang, per second", got, func(d deliveries) float64 { return d.mixed }),
		figures.New("Part of their rate that the 30 keep", got, func(d deliveries) float64 { return d.kept }),
		figures.New("Event to arrival at rest, p50, ms", got, func(d deliveries) float64 { return d.p50 }),
		figures.New("Event to arrival at rest, p99, ms", got, func(d deliveries) float64 { return d.p99 }),
	}, nil
}

func measureDeliveries(ctx context.Context, l *lab.Lab, s lab.Service) (d deliveries, err error) {
	err = l.Phase(ctx, s, func(sys lab.System) error {
		return sys.WithWorker(ctx, func(*stack.Process) error {
			return sys.WithRole(ctx, "deliverer", func(deliverer *stack.Process) error { return d.measure(ctx, l, sys, deliverer) })
		})
	})
	return d, err
}

// measure takes a running system through the phases.
func (d *deliveries) measure(ctx context.Context, l *lab.Lab, sys lab.System, deliverer *stack.Process) (err error) {
	var groups []*subscribers
	defer func() {
		for _, g := range groups {
			err = errors.Join(err, g.close())
		}
	}()
	for _, clients := range [][]endpoints{oneClient, oneClient, manyClients, mixedClients} {
		g := &subscribers{receivers: newReceivers()}
		groups = append(groups, g)
		for _, c := range clients {
			if err := g.subscribe(ctx, sys, c); err != nil {
				return err
			}
		}
	}
	lab.Pause(ctx, lab.Quiet) // the processes learn who has webhooks
	single, one, many, mixed := groups[0], groups[1], groups[2], groups[3]
	if err := single.submitOneByOne(ctx, singleJobs); err != nil {
		return err
	}
	d.p50, d.p99 = loadgen.Quantile(single.latency, 50), loadgen.Quantile(single.latency, 99)
	if d.one, err = one.deliver(ctx, oneClientJobs); err != nil {
		return err
	}
	process, servers := lab.ProcessCPU(deliverer), l.ServersCPU()
	if d.many, err = many.deliver(ctx, manyClientJobs); err != nil {
		return err
	}
	thousands := float64(manyClientJobs*eventsPerJob*many.answering) / 1000
	d.deliverer = (lab.ProcessCPU(deliverer) - process) / thousands
	d.cpu = d.deliverer + (l.ServersCPU()-servers)/thousands
	d.mixed, err = mixed.deliver(ctx, manyClientJobs)
	d.kept = d.mixed / (d.many * float64(mixed.answering) / float64(many.answering))
	return err
}
