package work

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

type uses struct {
	phase  string  // name in progress reports
	cpu    float64 // share of the attempt's time that is spent on hashing, 0 to 1
	memory int     // memory units (1 MiB) allocated in each step
	blocks int     // blocks written in each step
	// If `whole` is true, the first step takes all memory, and the steps write all blocks, however long this takes. If `whole` is false, a
	// step stops when its time is over. It takes at least one memory unit, or writes at least one block.
	whole bool
}

func (r *Runner) usesOf(k job.Kind) uses {
	switch k {
	case job.CPUBurst:
		return uses{phase: "HASHING", cpu: 1}
	case job.MemorySpike:
		return uses{phase: "ALLOCATING", memory: (cap(r.memory) + steps - 1) / steps}
	case job.IOHeavy:
		return uses{phase: "WRITING", blocks: fileBlocks}
	case job.ManySmallOutputs:
		return uses{phase: "PRODUCING"}
	default:
		return uses{phase: "WORKING"}
	}
}

func (u uses) share(step, steps int) (memory, firstBlock, blocks int) {
	if !u.whole {
		return u.memory, step * u.blocks, u.blocks
	}
	if step > 0 {
		u.memory = 0
	}
	first := u.blocks * step / steps
	return u.memory, first, u.blocks*(step+1)/steps - first
}

// Each unit of work takes a few milliseconds at most, so a cancel takes effect soon.
type attempt struct {
	job.Timeline
	uses  uses
	steps int
	items int       // KiB of the result body
	start time.Time // start of the attempt according to `clock`
	clock job.AttemptClock
	on    job.Observer

	hasher *hasher // nil: no hashing
	memory memory
	file   tempFile
}

func (r *Runner) newAttempt(d job.Definition, number int, on job.Observer) *attempt {
	t := clockOf(on)
	a := &attempt{
		uses: r.usesOf(d.WorkKind), steps: steps, items: d.PayloadSize / 1024, start: t.Start(), clock: t, on: on,
		memory: memory{budget: r.memory}, file: tempFile{dir: r.tempDir},
	}
	if b := d.Behavior; d.WorkKind == job.Custom {
		a.Timeline = d.Timeline(number)
		a.Duration, a.End = r.scaled(a.Duration), r.scaled(a.End)
		for i := range a.Events {
			a.Events[i].After = r.scaled(a.Events[i].After)
		}
		a.uses.cpu, a.uses.whole = b.CPU, true
		a.uses.memory, a.uses.blocks = (b.MemoryBytes+memoryUnit-1)/memoryUnit, (b.IOBytes+blockSize-1)/blockSize
		a.steps, a.items = b.StepsTotal(), (d.PayloadSize+1023)/1024
		a.start = a.start.Add(-time.Duration(b.BeginAt * float64(a.Duration)))
	} else {
		a.Duration = r.duration(d)
		a.End = a.Duration
		switch {
		case d.WorkKind == job.FailImmediate:
			a.steps = 1
		case a.Duration == 0:
			a.steps = instantSteps
		}
	}
	if a.uses.cpu > 0 {
		a.hasher = &hasher{turns: r.turns}
	}
	return a
}

func (a *attempt) release() {
	a.memory.release()
	a.file.release()
}

// run does the work of all steps. It does not report 100 %, because the result is not known yet.
func (a *attempt) run(ctx context.Context) error {
	events := a.Events
	for i := range a.steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.report(i)
		until, last := a.Duration/time.Duration(a.steps)*time.Duration(i+1), i == a.steps-1
		if last || until > a.End {
			until, last = a.End, true
		}
		if err := a.use(ctx, i, until); err != nil {
			return err
		}
		for ; len(events) > 0 && events[0].After <= until; events = events[1:] {
			if err := a.emit(ctx, events[0], len(a.Events)-len(events)); err != nil {
				return err
			}
		}
		if err := a.wait(ctx, until); err != nil || last {
			return err
		}
	}
	return nil
}

func (a *attempt) use(ctx context.Context, step int, until time.Duration) error {
	more := func() bool { return a.uses.whole || a.clock.Now().Before(a.start.Add(until)) }
	memory, first, blocks := a.uses.share(step, a.steps)
	for n := 0; n < memory && ctx.Err() == nil && a.memory.take() && more(); n++ {
	}
	for n := first; n < first+blocks && ctx.Err() == nil; n++ {
		if err := a.file.write(n); err != nil {
			return err
		}
		if !more() {
			break
		}
	}
	return context.Cause(ctx)
}

func (a *attempt) emit(ctx context.Context, e job.PlannedEvent, before int) error {
	if err := a.wait(ctx, e.After); err != nil || a.on.Emit == nil {
		return err
	}
	return a.on.Emit(before, e.Emission)
}

// wait hashes or sleeps until the duration `after` has passed since the attempt's start.
func (a *attempt) wait(ctx context.Context, after time.Duration) error {
	end := a.start.Add(after)
	if a.hasher != nil {
		now := a.clock.Now()
		stop := now.Add(time.Duration(float64(end.Sub(now)) * a.uses.cpu))
		for more := true; more; more = a.clock.Now().Before(stop) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := a.hasher.unit(ctx); err != nil {
				return err
			}
		}
	}
	if after == 0 {
		end = time.Time{} // do not wait: the zero time is in the past
	}
	return a.clock.WaitUntil(ctx, end)
}

func (a *attempt) report(done int) {
	if a.on.Progress == nil {
		return
	}
	phase := a.uses.phase
	switch done {
	case 0:
		phase = "STARTING"
	case a.steps:
		phase = "DONE"
	}
	a.on.Progress(job.Progress{
		Percentage: done * 100 / a.steps, Phase: phase,
		StepsCompleted: done, StepsTotal: a.steps,
		ItemsProcessed: done * a.items / a.steps, ItemsTotal: a.items,
		UpdatedAt: job.Time(a.clock.Now().UTC()),
	})
}
