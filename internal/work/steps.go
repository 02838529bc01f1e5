package work

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// pace spreads a load over a duration in equal steps and reports each.
type pace struct {
	duration time.Duration
	steps    int
	phase    string
	items    int // KiB of the result body
	report   func(job.Progress)
	clock    job.AttemptClock
}

// run does all steps. The last one is not reported: its result is not known yet.
func (p *pace) run(ctx context.Context, l load) error {
	start := p.clock.Start()
	for i := range p.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.reportDone(i)
		var until time.Time
		if p.duration > 0 {
			until = start.Add(p.duration / time.Duration(p.steps) * time.Duration(i+1))
		}
		if err := step(ctx, l, p.steps, func() bool { return p.clock.Now().Before(until) }); err != nil {
			return err
		}
		if err := p.clock.WaitUntil(ctx, until); err != nil {
			return err
		}
	}
	return nil
}

// reportDone reports that the given number of steps is done.
func (p *pace) reportDone(done int) {
	if p.report == nil {
		return
	}
	phase := p.phase
	switch done {
	case 0:
		phase = "STARTING"
	case p.steps:
		phase = "DONE"
	}
	p.report(job.Progress{
		Percentage: done * 100 / p.steps, Phase: phase,
		StepsCompleted: done, StepsTotal: p.steps,
		ItemsProcessed: done * p.items / p.steps, ItemsTotal: p.items,
		UpdatedAt: p.clock.Now().UTC(),
	})
}

// machineClock is the time of this machine, of an attempt that began then.
type machineClock time.Time

func clockOf(on job.Observer) job.AttemptClock {
	if on.Clock != nil {
		return on.Clock
	}
	return machineClock(time.Now())
}

func (t machineClock) Start() time.Time { return time.Time(t) }

func (machineClock) Now() time.Time { return time.Now() }

// WaitUntil returns at the given moment, the zero one being always past, or
// with context.Cause(ctx) when ctx ends first.
func (machineClock) WaitUntil(ctx context.Context, until time.Time) error {
	if left := time.Until(until); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}
