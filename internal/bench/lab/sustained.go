package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

const (
	// backlogBound is how many accepted jobs wait at most: workers never wait for work,
	// and a job finishes within seconds in the slowest system too.
	backlogBound     = 2000
	finishedInterval = 100 * time.Millisecond // between readings of what has finished
)

// Path is what a system does from submission to report, after the warm-up.
type Path struct {
	Finished float64       // per second
	P50, P99 time.Duration // from a job's creation to its report
	Usage    Usage
	Jobs     int // finished within the window
}

// CPU is seconds per 1,000 jobs, of all processes but the load generator.
func (p Path) CPU() float64 { return p.Usage.Service() / (float64(p.Jobs) / 1000) }

// Warmup is how long a system is kept busy before anything is counted.
func (o Options) Warmup() time.Duration { return max(time.Second, o.Duration/4) }

// Sustained keeps a system as busy as it can be for a while, counts what finishes
// within a window after the warm-up, and waits until everything accepted has
// finished.
func (l *Lab) Sustained(ctx context.Context, o Options, d *Database, sys System, workers ...*Program) (p Path, err error) {
	began := time.Now()
	gate := loadgen.NewGate(backlogBound)
	var group errgroup.Group
	watching, stop := context.WithCancel(ctx)
	group.Go(func() error { return watchFinished(watching, d, began, gate.Update) })
	var load loadgen.Load
	group.Go(func() (err error) {
		defer stop()
		load, err = loadgen.Closed{Clients: o.Clients, During: o.Warmup() + o.Duration, Gate: gate}.Submit(ctx, sys.Target)
		return err
	})
	Pause(ctx, o.Warmup())
	before := l.Usage(sys, workers...)
	Pause(ctx, o.Duration)
	p.Usage = l.Usage(sys, workers...).Since(before)
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return p, err
	}
	if err := d.AllFinished(ctx, began, load.Accepted, 10*o.Duration); err != nil {
		return p, err
	}
	return p, p.read(ctx, d, before.At)
}

// read fills in what finished within the window of the usage.
func (p *Path) read(ctx context.Context, d *Database, began time.Time) error {
	var p50, p99 float64
	err := d.Conn.QueryRow(ctx, `SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY t), 0),
			coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY t), 0)
		FROM (SELECT extract(epoch FROM finished_at - created_at)::float8 AS t FROM jobs WHERE finished_at >= $1 AND finished_at < $2) x`,
		began, p.Usage.At).Scan(&p.Jobs, &p50, &p99)
	p.Finished = float64(p.Jobs) / p.Usage.Took
	p.P50, p.P99 = time.Duration(p50*float64(time.Second)), time.Duration(p99*float64(time.Second))
	if err == nil && p.Jobs == 0 {
		err = errors.New("no job finished within the window")
	}
	return err
}

// watchFinished passes on how many jobs have finished since a moment, until the
// context ends. It reads only rows later than the mark, and so misses transactions
// that take longer than delay to commit: the number bounds the backlog and is no result.
func watchFinished(ctx context.Context, d *Database, since time.Time, update func(int)) error {
	const delay = 500 * time.Millisecond
	conn, err := pgx.Connect(ctx, d.URL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	counted, mark := 0, since
	for {
		next := time.Now().Add(-delay)
		if next.Before(mark) {
			next = mark
		}
		var old, recent int
		asked := time.Now()
		err := conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE finished_at <= $2), count(*) FILTER (WHERE finished_at > $2)
			FROM jobs WHERE finished_at > $1`, mark, next).Scan(&old, &recent)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		counted, mark = counted+old, next
		update(counted + recent)
		Pause(ctx, max(finishedInterval, restShare*time.Since(asked)))
	}
}

// ErrUnfinished is returned when accepted jobs did not finish in time.
var ErrUnfinished = errors.New("not all accepted jobs have finished")

// AllFinished waits until so many jobs that were created since a moment have their
// reports.
func (d *Database) AllFinished(ctx context.Context, since time.Time, accepted int, within time.Duration) error {
	finished := 0
	err := Poll(ctx, within, "all accepted jobs finished", func() (bool, error) {
		n, err := d.Number(ctx, `SELECT count(*) FROM jobs JOIN reports USING (job_id) WHERE jobs.finished_at >= $1 AND jobs.created_at >= $1`,
			since)
		finished = int(n)
		return finished >= accepted, err
	})
	if errors.Is(err, ErrLate) || err == nil && finished > accepted {
		return fmt.Errorf("%w: %d of %d", ErrUnfinished, finished, accepted)
	}
	return err
}
