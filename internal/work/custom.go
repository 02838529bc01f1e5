package work

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"mime"
	"time"

	"github.com/forgerun/forgerun/job"
)

// custom is a run of CUSTOM. What it uses of CPU, memory and files it takes like
// the kinds that are made for it, within the bounds of all runs together.
type custom struct {
	behavior *job.Behavior
	plan     job.Timeline
	start    time.Time // by pace.clock
	on       job.Observer
	cpu      cpuBurst
	memory   memorySpike
	files    ioHeavy
	pace     pace
}

// runCustom is Run for CUSTOM: what the definition plans for the attempt, and when.
func (r *Runner) runCustom(ctx context.Context, d job.Definition, attempt int, on job.Observer) (*job.Result, error) {
	plan := d.Timeline(attempt)
	plan.Duration, plan.End = r.scaled(plan.Duration), r.scaled(plan.End)
	for i := range plan.Events {
		plan.Events[i].After = r.scaled(plan.Events[i].After)
	}
	t := clockOf(on)
	c := &custom{
		behavior: d.Behavior, plan: plan, start: t.Start().Add(-time.Duration(d.Behavior.BeginAt * float64(plan.Duration))), on: on,
		cpu: cpuBurst{turns: r.turns}, memory: memorySpike{budget: r.memory}, files: ioHeavy{dir: r.tempDir},
		pace: pace{duration: plan.Duration, steps: d.Behavior.StepsTotal(), phase: "WORKING", items: (d.PayloadSize + 1023) / 1024,
			report: on.Progress, clock: t},
	}
	defer c.memory.release()
	defer c.files.release()
	if err := c.work(ctx); err != nil {
		return nil, err
	}
	if plan.Failure != nil {
		return nil, &Failure{Reason: job.CustomFailed}
	}
	result := customResult(d)
	c.pace.reportDone(c.pace.steps)
	return result, nil
}

// work does all until the attempt's end: the steps at equal distances over the
// duration, as many as come before the end, and the events at their times.
func (c *custom) work(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.pace.reportDone(0)
	if err := c.allocate(ctx); err != nil {
		return err
	}
	emitted := 0
	for i := range c.pace.steps {
		if err := c.write(ctx, i); err != nil {
			return err
		}
		next := c.plan.Duration * time.Duration(i+1) / time.Duration(c.pace.steps)
		for emitted < len(c.plan.Events) && c.plan.Events[emitted].After <= min(next, c.plan.End) {
			if err := c.emit(ctx, emitted); err != nil {
				return err
			}
			emitted++
		}
		if next > c.plan.End || i == c.pace.steps-1 { // the last one is not reported: its result is not known yet
			break
		}
		if err := c.until(ctx, next); err != nil {
			return err
		}
		c.pace.reportDone(i + 1)
	}
	for ; emitted < len(c.plan.Events); emitted++ {
		if err := c.emit(ctx, emitted); err != nil {
			return err
		}
	}
	return c.until(ctx, c.plan.End)
}

// emit emits the event of that number at its time.
func (c *custom) emit(ctx context.Context, n int) error {
	e := c.plan.Events[n]
	if err := c.until(ctx, e.After); err != nil || c.on.Emit == nil {
		return err
	}
	return c.on.Emit(n, e.Emission)
}

// until works on to that time from the start: it hashes for its share of the time
// that is left, and waits.
func (c *custom) until(ctx context.Context, after time.Duration) error {
	end := c.start.Add(after)
	now := c.pace.clock.Now()
	for stop := now.Add(time.Duration(float64(end.Sub(now)) * c.behavior.CPU)); c.pace.clock.Now().Before(stop); {
		if _, err := c.cpu.unit(ctx, 0); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return c.pace.clock.WaitUntil(ctx, end)
}

// allocate takes the memory, as far as the budget of all runs has it.
func (c *custom) allocate(ctx context.Context) error {
	for n := range (c.behavior.MemoryBytes + memoryUnit - 1) / memoryUnit {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if more, err := c.memory.unit(ctx, n); err != nil || !more {
			return err
		}
	}
	return nil
}

// write writes and reads back the step's share of the bytes, in blocks of a file
// that is not larger than that of IO_HEAVY.
func (c *custom) write(ctx context.Context, step int) error {
	blocks := (c.behavior.IOBytes + blockSize - 1) / blockSize
	for n := blocks * step / c.pace.steps; n < blocks*(step+1)/c.pace.steps; n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := c.files.unit(ctx, n%(fileSize/blockSize)); err != nil {
			return err
		}
	}
	return nil
}

// customResult is the body of the request as it was sent, or so many bytes that
// depend on the seed alone: a JSON document like that of other kinds if there is
// room, a JSON string or number if there is not, and letters of another media type.
func customResult(d job.Definition) *job.Result {
	planned := d.Behavior.Result
	media := cmp.Or(planned.MediaType, MediaTypeJSON)
	if planned.Body != nil {
		return resultOf(media, []byte(*planned.Body))
	}
	random := randomOf(d)
	base, _, _ := mime.ParseMediaType(media)
	start, end := fmt.Sprintf(`{"work_kind":"%s","seed":%d,"data":"`, d.WorkKind, d.Seed), `"}`
	switch {
	case base != MediaTypeJSON:
		start, end = "", ""
	case d.PayloadSize == 1:
		start, end = "0", ""
	case d.PayloadSize < len(start)+len(end):
		start, end = `"`, `"`
	}
	return resultOf(media, lettersBetween(start, end, d.PayloadSize, random))
}

func lettersBetween(start, end string, size int, random *rand.PCG) []byte {
	return appendFilled(append(make([]byte, 0, size), start...), size, random, end)
}
