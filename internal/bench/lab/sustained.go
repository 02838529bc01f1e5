package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	// backlogBound is how many accepted jobs wait at most: workers never wait for work,
	// and a job finishes within seconds in the slowest system too.
	backlogBound     = 2000
	finishedInterval = 100 * time.Millisecond // between readings of what has finished
)

// Path is what a system does from submission to report, after the warm-up.
type Path struct {
	Finished float64 // per second
	Jobs     int     // finished within the window
	Usage    Usage
}

// CPU is seconds per 1,000 jobs, of all processes but the load generator.
func (p Path) CPU() float64 { return p.Usage.Service() / (float64(p.Jobs) / 1000) }

func (p Path) String() string {
	return fmt.Sprintf("finished %.0f/s, CPU %.3f s per 1,000 jobs; %v", p.Finished, p.CPU(), p.Usage)
}

// Sustained keeps a system as busy as it can be for a while, counts what finishes
// within a window after the warm-up, and waits until everything accepted has
// finished.
func (l *Lab) Sustained(ctx context.Context, sys System, worker *stack.Process) (p Path, err error) {
	began := time.Now()
	gate := loadgen.NewGate(backlogBound)
	var group errgroup.Group
	watching, stop := context.WithCancel(ctx)
	group.Go(func() error { return watchFinished(watching, sys.DB.URL, began, gate.Update) })
	var load loadgen.Load
	group.Go(func() (err error) {
		defer stop()
		load, err = loadgen.Closed{Clients: Clients, During: l.Warmup() + l.Duration, Gate: gate}.Submit(ctx, sys.Target)
		return err
	})
	Pause(ctx, l.Warmup())
	before := l.Usage(sys, worker)
	Pause(ctx, l.Duration)
	p.Usage = l.Usage(sys, worker).Since(before)
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return p, err
	}
	if err := sys.DB.AllFinished(ctx, began, load.Accepted); err != nil {
		return p, err
	}
	finished, err := sys.DB.Number(ctx, "SELECT count(*) FROM jobs WHERE finished_at >= $1 AND finished_at < $2", before.At, p.Usage.At)
	p.Jobs, p.Finished = int(finished), finished/p.Usage.Took
	if err == nil && p.Jobs == 0 {
		err = errors.New("no job finished within the window")
	}
	return p, err
}

// watchFinished passes on how many jobs have finished since a moment, until the context ends.
func watchFinished(ctx context.Context, url string, since time.Time, update func(int)) error {
	d := Database{}
	var err error
	if d.Conn, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	defer func() { _ = d.Conn.Close(context.WithoutCancel(ctx)) }()
	for {
		asked := time.Now()
		finished, err := d.Number(ctx, "SELECT count(*) FROM jobs WHERE finished_at > $1", since)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		update(int(finished))
		Pause(ctx, rest(time.Since(asked), finishedInterval))
	}
}
