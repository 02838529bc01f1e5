package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

// Targets with many finished jobs in the tables, in terms of empty tables.
const (
	finishedJobs       = 5_000_000
	finishedRateTarget = 0.9
	readTarget         = 1.5
)

// Finished measures submission, the whole path and reading with millions of finished
// jobs in the tables and with none.
func Finished(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	jobs := l.Options.Jobs(finishedJobs)
	if err := needDisk(uint64(jobs)*bytesOfFinished + spareDisk); err != nil {
		return nil, err
	}
	err = withSeeded(ctx, l, seedFinishedJobs, jobs, func(seeded *lab.Database) error {
		began := time.Now()
		c, err := compare(l, func() (t turn, err error) {
			err = l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
				return finishedTurn(ctx, l, d, sys, time.Now().Add(time.Hour), &t)
			})
			return t, err
		}, func() (t turn, err error) {
			err = lab.Serve(ctx, seeded, l.Options, l.StartService, func(sys lab.System) error {
				err := finishedTurn(ctx, l, seeded, sys, began, &t)
				return errors.Join(err, lab.WithWorker(sys, func(*lab.Program) error { return drained(ctx, seeded) }))
			})
			return t, err
		})
		if err == nil {
			list = finishedFigures(jobs, c)
		}
		return err
	})
	return list, err
}

func finishedFigures(jobs int, c comparison) []figures.Figure {
	name := fmt.Sprintf("%s finished jobs in the tables: ", short(jobs))
	accepted, acceptedNote := c.against(turnAccepted, "%.0f/s")
	finished, finishedNote := c.against(turnFinished, "%.0f/s")
	read, readNote := c.against(turnRead99, "%.2f ms")
	return []figures.Figure{
		figures.AtLeast(name+"accepted/s", finishedRateTarget, accepted, "x empty",
			acceptedNote+fmt.Sprintf("; with results for %d days, bodies for one", seedDays)),
		figures.AtLeast(name+"finished/s, sustained", finishedRateTarget, finished, "x empty", finishedNote),
		figures.AtMost(name+"GET job p99", readTarget, read, "x empty", readNote+fmt.Sprintf(", %.0f/s offered, random jobs", readRate)),
	}
}

// finishedTurn measures one side. What it submits last is left to be done.
func finishedTurn(ctx context.Context, l *lab.Lab, d *lab.Database, sys lab.System, before time.Time, t *turn) error {
	err := lab.WithWorker(sys, func(worker *lab.Program) error {
		p, err := l.Sustained(ctx, l.Options, d, sys, worker)
		t.finished = p.Finished
		return err
	})
	if err != nil {
		return err
	}
	if t.accepted, err = accept(ctx, l, sys); err != nil {
		return err
	}
	lab.Pause(ctx, lab.Quiet)
	t.read99, err = read(ctx, l, d, sys, before)
	return err
}

// short writes a round number in words.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%g million", float64(n)/1e6)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d,000", n/1000)
	}
	return fmt.Sprint(n)
}
