package work

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// load is what a kind does in each step, before the rest of the step's time is
// waited out.
type load interface {
	// phase names the work in progress reports.
	phase() string
	// step does one step of the given number: at least one unit of the work,
	// then more until the step's share is done or the time is up. It returns
	// context.Cause(ctx) when ctx ends, checked before each unit; units take
	// a few milliseconds at most.
	step(ctx context.Context, steps int, until time.Time) error
	// result makes the result body after the last step.
	result(d job.Definition) *job.Result
	// release gives back everything taken. It is always called, once.
	release()
}

// loadOf gives the load of d's kind.
func (r *Runner) loadOf(d job.Definition) load {
	switch d.WorkKind {
	case job.CPUBurst:
		return &burn{turns: r.turns}
	case job.MemorySpike:
		return &spike{budget: r.memory}
	case job.IOHeavy:
		return &disk{dir: r.tempDir}
	case job.ManySmallOutputs:
		return newLines(d)
	default:
		return idle{}
	}
}

// idle does nothing: most kinds just wait. The other loads embed it for what
// they do not do differently.
type idle struct{}

func (idle) phase() string                              { return "WORKING" }
func (idle) step(context.Context, int, time.Time) error { return nil }
func (idle) result(d job.Definition) *job.Result        { return document(d) }
func (idle) release()                                   {}
