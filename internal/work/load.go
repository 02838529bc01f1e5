package work

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// load is the work of a kind in units of a few milliseconds at most. Each step
// does a share of them.
type load interface {
	// phase names the work in progress reports.
	phase() string
	// units is how many units one of the steps does at most.
	units(steps int) int
	// unit does one unit, counted from 0 in each step, and reports whether the
	// step can do more. It returns context.Cause(ctx) if it waits and ctx ends.
	unit(ctx context.Context, n int) (more bool, err error)
	// result makes the result body after the last step.
	result(d job.Definition) *job.Result
	// release gives back everything taken. It is always called, once.
	release()
}

// loadOf gives the load of d's kind.
func (r *Runner) loadOf(d job.Definition) load {
	switch d.WorkKind {
	case job.CPUBurst:
		return &cpuBurst{turns: r.turns}
	case job.MemorySpike:
		return &memorySpike{budget: r.memory}
	case job.IOHeavy, job.Custom: // of CUSTOM, for a probe: only its files can fail for the machine's lack of something
		return &ioHeavy{dir: r.tempDir}
	case job.ManySmallOutputs:
		return newSmallOutputs(d)
	default:
		return idle{}
	}
}

// idle does nothing: most kinds just wait. The other loads embed it for the
// defaults.
type idle struct{}

func (idle) phase() string                           { return "WORKING" }
func (idle) units(int) int                           { return 0 }
func (idle) unit(context.Context, int) (bool, error) { return false, nil }
func (idle) result(d job.Definition) *job.Result     { return document(d) }
func (idle) release()                                {}

// step does one of the steps: at least one unit, then more until the step's
// share is done or there is no time left. It returns context.Cause(ctx) when ctx ends.
func step(ctx context.Context, l load, steps int, timeLeft func() bool) error {
	for n := range l.units(steps) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if more, err := l.unit(ctx, n); err != nil || !more || !timeLeft() {
			return err
		}
	}
	return nil
}
