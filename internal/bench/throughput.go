package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	acceptedFigure  = "Accepted one by one, jobs/s"
	answerFigure    = "Time to the answer, p99, ms"
	sustainedFigure = "Submitted and finished at the same time, jobs/s"
	cpuFigure       = "CPU of that, seconds for 1,000 jobs (less is better)"
)

// throughputExperiment measures submission with the workers stopped, and the whole path.
func throughputExperiment(ctx context.Context, l *lab) ([]figure, error) {
	return inTurns(l.rounds, l.programs(ctx, measureThroughput), acceptedFigure, answerFigure, sustainedFigure, cpuFigure)
}

func measureThroughput(ctx context.Context, l *lab, s service) (sample, error) {
	got := sample{}
	err := l.phase(ctx, s, func(sys system) error {
		if _, err := (closed{clients: clients, during: l.warmup()}).submit(ctx, sys.target); err != nil {
			return err
		}
		before := l.use(sys, nil)
		accepted, err := closed{clients: clients, during: l.duration}.submit(ctx, sys.target)
		fmt.Println("  accepting:", l.use(sys, nil).since(before))
		got[acceptedFigure], got[answerFigure] = accepted.rate(), quantile(accepted.latency, 99)
		return err
	})
	if err != nil {
		return got, err
	}
	return got, l.phase(ctx, s, func(sys system) error {
		return sys.withWorker(ctx, func(worker *stack.Process) (err error) {
			got[sustainedFigure], got[cpuFigure], err = l.sustained(ctx, sys, worker)
			return err
		})
	})
}

// sustained keeps a system as busy as possible for a while, counts finished jobs in a window after the warm-up, and waits until all
// accepted jobs have finished. It returns jobs per second, and CPU seconds per 1,000 jobs without the load generator.
func (l *lab) sustained(ctx context.Context, sys system, worker *stack.Process) (rate, cpu float64, err error) {
	began := time.Now()
	// Workers never wait for work, and a job finishes within seconds.
	waiting := &gate{unfinished: make(chan struct{}, 2000)}
	var group errgroup.Group
	watching, stop := context.WithCancel(ctx)
	group.Go(func() error { return watchFinished(watching, sys.db.url, began, waiting.update) })
	var sent load
	group.Go(func() (err error) {
		defer stop()
		sent, err = closed{clients: clients, during: l.warmup() + l.duration, gate: waiting}.submit(ctx, sys.target)
		return err
	})
	stack.Sleep(ctx, l.warmup())
	before := l.use(sys, worker)
	stack.Sleep(ctx, l.duration)
	used := l.use(sys, worker).since(before)
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return 0, 0, err
	}
	if err := sys.db.allFinished(ctx, began, sent.accepted); err != nil {
		return 0, 0, err
	}
	fmt.Println("  whole path:", used)
	jobs, err := sys.db.number(ctx, "SELECT count(*) FROM jobs WHERE finished_at >= $1 AND finished_at < $2", before.at, used.at)
	if err == nil && jobs == 0 {
		err = errors.New("no job finished within the window")
	}
	return jobs / used.took, used.service() / (jobs / 1000), err
}

// watchFinished passes on how many jobs have finished since a moment, until the context ends.
func watchFinished(ctx context.Context, url string, since time.Time, update func(int)) (err error) {
	d := database{}
	if d.conn, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	defer func() { _ = d.conn.Close(context.WithoutCancel(ctx)) }()
	for asked := time.Now(); stack.Sleep(ctx, max(100*time.Millisecond, 20*time.Since(asked))); {
		asked = time.Now()
		finished, err := d.number(ctx, "SELECT count(*) FROM jobs WHERE finished_at > $1", since)
		if err != nil && ctx.Err() == nil {
			return err
		}
		update(int(finished))
	}
	return nil
}

const (
	startP50     = "Submit to RUNNING at rest, p50, ms"
	startP99     = "Submit to RUNNING at rest, p99, ms"
	idleWorker   = "CPU of an idle worker, % of a core"
	idleTogether = "CPU of an idle worker and on its behalf, % of a core"
	idleJobs     = 300
	idleWindow   = 10 * time.Second
)

// idleExperiment measures how soon a single job runs when there is nothing else to do, and the CPU of waiting for it.
func idleExperiment(ctx context.Context, l *lab) ([]figure, error) {
	return inTurns(l.rounds, l.programs(ctx, measureIdle), startP50, startP99, idleWorker, idleTogether)
}

func measureIdle(ctx context.Context, l *lab, s service) (sample, error) {
	got := sample{}
	atRest := func(sys system, worker *stack.Process) usage {
		stack.Sleep(ctx, quiet)
		before := l.use(sys, worker)
		stack.Sleep(ctx, idleWindow)
		return l.use(sys, worker).since(before)
	}
	together := func(u usage) float64 { return 100 * (u.worker + u.postgres + u.redis) / u.took }
	return got, l.phase(ctx, s, func(sys system) error {
		err := sys.withWorker(ctx, func(worker *stack.Process) error {
			stack.Sleep(ctx, quiet)
			err := got.startsOneByOne(ctx, sys)
			used := atRest(sys, worker)
			got[idleWorker], got[idleTogether] = 100*used.worker/used.took, together(used)
			return err
		})
		got[idleTogether] -= together(atRest(sys, nil))
		return err
	})
}

// startsOneByOne submits single jobs and measures the times from a request to the start of its job. The random gaps are longer than
// a worker waits between two looks at the queue, so one job is over before the next.
func (s sample) startsOneByOne(ctx context.Context, sys system) error {
	client := newHTTPClient(1)
	defer client.CloseIdleConnections()
	one, sent, began := newSubmission(client, sys.target), make([]time.Time, idleJobs), time.Now()
	for i := range sent {
		stack.Sleep(ctx, time.Duration(30+rand.IntN(20))*time.Millisecond)
		sent[i] = time.Now()
		if err := errors.Join(one.send(), ctx.Err()); err != nil {
			return err
		}
	}
	if err := sys.db.allFinished(ctx, began, idleJobs); err != nil {
		return err
	}
	rows, err := sys.db.conn.Query(ctx, "SELECT started_at FROM jobs WHERE created_at >= $1 ORDER BY created_at", began)
	if err != nil {
		return err
	}
	started, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	starts := newHistogram()
	for i, at := range started {
		record(starts, at.Sub(sent[i]))
	}
	s[startP50], s[startP99] = quantile(starts, 50), quantile(starts, 99)
	return err
}
