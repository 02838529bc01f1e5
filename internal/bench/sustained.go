package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// backlogBound is how many accepted jobs wait at most while finished ones are
// counted: a worker never waits for work, and the backlog does not grow. It is
// small enough for a job to finish within seconds in the slowest system too.
const backlogBound = 2000

// pollInterval is how often the number of finished jobs is read.
const pollInterval = 100 * time.Millisecond

// path is what a system does from submission to report, once it has got going.
type path struct {
	finished float64       // per second
	p50, p99 time.Duration // from a job's creation to its report
	usage    usage
	jobs     int // finished within the window
}

// cpu is seconds per 1,000 jobs, of all processes but the load generator.
func (p path) cpu() float64 { return p.usage.service() / (float64(p.jobs) / 1000) }

// sustained keeps a system as busy as it can be for a while, counts what finishes
// within a window after the warm-up, and waits until everything accepted has
// finished.
func (s *stack) sustained(ctx context.Context, o options, d *database, sys system, workers ...*program) (p path, err error) {
	began := time.Now()
	through := newGate(backlogBound)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- watchFinished(watching, d, began, through.update) }()
	type answer struct {
		load load
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		l, err := generate(ctx, sys, o.clients, warmup(o)+o.duration, through)
		answered <- answer{l, err}
	}()
	pause(ctx, warmup(o))
	before := s.usage(sys, workers...)
	pause(ctx, o.duration)
	p.usage = s.usage(sys, workers...).since(before)
	a := <-answered
	if err := errors.Join(a.err, ctx.Err()); err != nil {
		return p, err
	}
	stop()
	if err := <-watched; err != nil && !errors.Is(err, context.Canceled) {
		return p, err
	}
	if err := allFinished(ctx, d, began, a.load.accepted, 10*o.duration); err != nil {
		return p, err
	}
	var p50, p99 float64
	err = d.conn.QueryRow(ctx, `SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY t), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY t), 0)
		FROM (SELECT extract(epoch FROM finished_at - created_at)::float8 AS t FROM jobs WHERE finished_at >= $1 AND finished_at < $2) x`,
		before.at, p.usage.at).Scan(&p.jobs, &p50, &p99)
	p.finished = float64(p.jobs) / p.usage.took
	p.p50, p.p99 = time.Duration(p50*float64(time.Second)), time.Duration(p99*float64(time.Second))
	if err == nil && p.jobs == 0 {
		err = errors.New("no job finished within the window")
	}
	return p, err
}

// warmup is how long a system is kept busy before anything is counted.
func warmup(o options) time.Duration { return max(time.Second, o.duration/4) }

// pause waits for a while, less if the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// watchFinished tells again and again how many jobs have finished since a moment,
// until the context ends. It reads the latest rows only: what finished longer ago
// than the mark has been counted. That misses a transaction which takes longer
// than settled to commit, so the number steers the load and judges nothing.
func watchFinished(ctx context.Context, d *database, since time.Time, tell func(int)) error {
	const settled = 500 * time.Millisecond
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	counted, mark := 0, since
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
		next := time.Now().Add(-settled)
		if next.Before(mark) {
			next = mark
		}
		var old, recent int
		err := conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE finished_at <= $2), count(*) FILTER (WHERE finished_at > $2)
			FROM jobs WHERE finished_at > $1`, mark, next).Scan(&old, &recent)
		if err != nil {
			return err
		}
		counted, mark = counted+old, next
		tell(counted + recent)
	}
}

// allFinished waits until so many jobs that were created since a moment have their
// reports.
func allFinished(ctx context.Context, d *database, since time.Time, accepted int, within time.Duration) error {
	for limit := time.Now().Add(within); ; {
		asked := time.Now()
		var finished int
		if err := d.conn.QueryRow(ctx, `SELECT count(*) FROM jobs JOIN reports USING (job_id) WHERE jobs.finished_at >= $1 AND jobs.created_at >= $1`,
			since).Scan(&finished); err != nil {
			return err
		}
		if finished == accepted {
			return nil
		}
		if finished > accepted || time.Now().After(limit) {
			return fmt.Errorf("%w: %d of %d", errUnfinished, finished, accepted)
		}
		pause(ctx, max(pollInterval, 4*time.Since(asked))) // counting must not be what the machine does
	}
}
