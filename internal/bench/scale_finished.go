package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Targets with many finished jobs in the tables, in terms of empty tables.
const (
	finishedJobs    = 5_000_000
	keptRateTarget  = 0.9
	readTarget      = 1.5
	bytesOfFinished = 3500    // in tables and indexes, of one seeded job
	spareDisk       = 6 << 30 // for the WAL and whatever is measured
)

// scaleFinished measures submission, the whole path and reading with millions of
// finished jobs in the tables and with none.
func scaleFinished(ctx context.Context, l *lab) ([]figure, error) {
	jobs := seeded(finishedJobs)
	if err := needDisk(uint64(jobs)*bytesOfFinished + spareDisk); err != nil {
		return nil, err
	}
	l.say("seeding %d finished jobs of %d clients over %d days", jobs, seedClients, seedDays)
	d, key, err := l.seededDatabase(ctx, func(d *database, client uuid.UUID) error { return seedFinishedJobs(ctx, d, client, jobs) })
	if d != nil {
		defer func() { _ = l.drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	}
	if err != nil {
		return nil, err
	}
	began := time.Now()
	empty, many, err := l.compare(func() (t turn, err error) {
		err = l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) (err error) {
			t, err = l.fullTurn(ctx, d, sys, time.Now().Add(time.Hour))
			return err
		})
		return t, err
	}, func() (t turn, err error) {
		err = l.serve(ctx, d, key, nil, func(sys system) (err error) {
			t, err = l.fullTurn(ctx, d, sys, began)
			return errors.Join(err, withWorker(sys, func(*program) error { return drained(ctx, d) }))
		})
		return t, err
	})
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s finished jobs in the tables: ", short(jobs))
	accepted, acceptedNote := against(empty, many, turnAccepted, "%.0f/s")
	finished, finishedNote := against(empty, many, turnFinished, "%.0f/s")
	read, readNote := against(empty, many, turnRead99, "%.2f ms")
	return []figure{
		atLeast(name+"accepted/s", keptRateTarget, accepted, "x empty", acceptedNote+fmt.Sprintf("; with results for %d days, bodies for one", seedDays)),
		atLeast(name+"finished/s, sustained", keptRateTarget, finished, "x empty", finishedNote),
		atMost(name+"GET job p99", readTarget, read, "x empty", readNote+fmt.Sprintf(", %.0f/s offered, random jobs", readRate)),
	}, nil
}

// fullTurn measures one side. What it submits last is left to be done.
func (l *lab) fullTurn(ctx context.Context, d *database, sys system, before time.Time) (t turn, err error) {
	err = withWorker(sys, func(worker *program) error {
		p, err := l.sustained(ctx, l.o, d, sys, worker)
		t.finished = p.finished
		return err
	})
	if err != nil {
		return t, err
	}
	if t.accepted, err = l.accept(ctx, sys); err != nil {
		return t, err
	}
	pause(ctx, settling)
	t.read99, err = l.read(ctx, d, sys, before)
	return t, err
}

// short writes a round number as people say it.
func short(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return fmt.Sprintf("%g million", float64(n)/1e6)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%d,000", n/1000)
	}
	return fmt.Sprint(n)
}
