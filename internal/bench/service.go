package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	acceptedFigure  = "Accepted one by one, jobs/s"
	answerFigure    = "Time to the answer, p99, ms"
	sustainedFigure = "Submitted and finished at the same time, jobs/s"
	cpuFigure       = "CPU of that, seconds for 1,000 jobs (less is better)"
	startP50        = "Submit to RUNNING at rest, p50, ms"
	startP99        = "Submit to RUNNING at rest, p99, ms"
	idleWorker      = "CPU of an idle worker, % of a core"
	idleTogether    = "CPU of an idle worker and on its behalf, % of a core"
	largeAccepted   = "Large table: accepted, jobs/s"
	largeSustained  = "Large table: submitted and finished, jobs/s"
	largeRead       = "Large table: GET job, p99, ms"

	unfinishedJobs = 2000 // workers never wait for work, and a job finishes within seconds
	idleJobs       = 300
	idleWindow     = 10 * time.Second
	readPause      = 2 * time.Millisecond // between two GET requests: far from the limit
	readClients    = 32
	tableAge       = 29 * 24 * time.Hour // of the oldest finished job: they are kept for 30 days
	copyChunk      = 5000                // jobs of one transaction
)

// throughput measures submission with the workers stopped, and the whole path.
func throughput(ctx context.Context, l *lab) ([][]string, error) {
	return l.comparePrograms(func(s service, got sample) error {
		err := l.phase(ctx, s, func(sys system) error {
			if _, err := (closed{clients: clients, during: l.warmup()}).submit(ctx, sys.target); err != nil {
				return err
			}
			var accepted load
			used, err := sys.while(func() (err error) {
				accepted, err = closed{clients: clients, during: l.duration}.submit(ctx, sys.target)
				return err
			})
			fmt.Println("  accepting:", used)
			got[acceptedFigure], got[answerFigure] = accepted.rate(), quantile(accepted.latency, 0.99)
			return err
		})
		if err != nil {
			return err
		}
		return l.phase(ctx, s, func(sys system) (err error) {
			got[sustainedFigure], got[cpuFigure], err = sys.sustained(ctx)
			return err
		})
	}, acceptedFigure, answerFigure, sustainedFigure, cpuFigure)
}

// sustained keeps a system with a worker as busy as possible for a while, counts finished jobs in a window after the warm-up, and waits
// until all accepted jobs have finished. It returns jobs per second, and CPU seconds per 1,000 jobs without the load generator.
func (s system) sustained(ctx context.Context) (rate, cpu float64, err error) {
	err = s.withWorker(ctx, func() error {
		began := time.Now()
		room := semaphore.NewWeighted(unfinishedJobs)
		enter := func(ctx context.Context) error { return room.Acquire(ctx, 1) }
		var group errgroup.Group
		watching, stop := context.WithCancel(ctx)
		group.Go(func() error { return watchFinished(watching, s.db.url, began, room.Release) })
		var sent load
		group.Go(func() (err error) {
			defer stop()
			sent, err = closed{clients: clients, during: s.lab.warmup() + s.lab.duration, admit: enter}.submit(ctx, s.target)
			return err
		})
		stack.Sleep(ctx, s.lab.warmup())
		used, _ := s.while(func() error { stack.Sleep(ctx, s.lab.duration); return nil })
		if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
			return err
		}
		if err := s.db.allFinished(ctx, began, sent.accepted); err != nil {
			return err
		}
		fmt.Println("  whole path:", used)
		jobs, err := s.db.number(ctx, "SELECT count(*) FROM jobs WHERE finished_at >= $1 AND finished_at < $2", used.from, used.to)
		if err == nil && jobs == 0 {
			err = errors.New("no job finished within the window")
		}
		rate, cpu = jobs/used.seconds(), used.service()/(jobs/1000)
		return err
	})
	return rate, cpu, err
}

// watchFinished passes on how many more jobs have finished since a moment, until the context ends.
func watchFinished(ctx context.Context, url string, since time.Time, more func(int64)) (err error) {
	d := database{}
	if d.conn, err = pgx.Connect(ctx, url); err != nil {
		return err
	}
	defer func() { _ = d.conn.Close(context.WithoutCancel(ctx)) }()
	known := 0.0
	for asked := time.Now(); stack.Sleep(ctx, max(100*time.Millisecond, 20*time.Since(asked))); {
		asked = time.Now()
		finished, err := d.number(ctx, "SELECT count(*) FROM jobs WHERE finished_at > $1", since)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		more(int64(finished - known))
		known = finished
	}
	return nil
}

// idle measures how soon a single job runs when there is nothing else to do, and the CPU of waiting for it.
func idle(ctx context.Context, l *lab) ([][]string, error) {
	return l.comparePrograms(func(s service, got sample) error {
		return l.phase(ctx, s, func(sys system) error {
			atRest := func() usage {
				stack.Sleep(ctx, quiet)
				used, _ := sys.while(func() error { stack.Sleep(ctx, idleWindow); return nil })
				return used
			}
			together := func(u usage) float64 { return 100 * u.of("worker", "Postgres", "Redis") / u.seconds() }
			err := sys.withWorker(ctx, func() error {
				stack.Sleep(ctx, quiet)
				starts, err := startsOneByOne(ctx, sys)
				got[startP50], got[startP99] = quantile(starts, 0.5), quantile(starts, 0.99)
				used := atRest()
				got[idleWorker], got[idleTogether] = 100*used.of("worker")/used.seconds(), together(used)
				return err
			})
			got[idleTogether] -= together(atRest())
			return err
		})
	}, startP50, startP99, idleWorker, idleTogether)
}

// startsOneByOne submits single jobs and returns the times, in ms, from a request to the start of its job. The random gaps are longer
// than a worker waits between two looks at the queue, so one job is over before the next.
func startsOneByOne(ctx context.Context, sys system) (starts []float64, err error) {
	var sent []time.Time
	began := time.Now()
	_, err = closed{clients: 1, jobs: idleJobs, admit: func(ctx context.Context) error {
		stack.Sleep(ctx, time.Duration(30+rand.IntN(20))*time.Millisecond)
		sent = append(sent, time.Now())
		return nil
	}}.submit(ctx, sys.target)
	if err != nil {
		return nil, err
	}
	if err := sys.db.allFinished(ctx, began, idleJobs); err != nil {
		return nil, err
	}
	rows, err := sys.db.conn.Query(ctx, "SELECT started_at FROM jobs ORDER BY created_at")
	if err != nil {
		return nil, err
	}
	started, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	for i, at := range started {
		starts = append(starts, milliseconds(at.Sub(sent[i])))
	}
	return starts, err
}

// largeTable measures submission, the whole path and reading with many finished jobs in the tables and with none.
func largeTable(ctx context.Context, l *lab) (lines [][]string, err error) {
	service := l.services[0]
	err = l.withDatabase(ctx, func(large *database) error {
		if err := l.serve(ctx, large, service, func(sys system) error { return fill(ctx, sys) }); err != nil {
			return err
		}
		filled := time.Now()
		full := func(got sample) error {
			return l.serve(ctx, large, service, func(sys system) error { return got.table(ctx, sys, filled) })
		}
		empty := func(got sample) error {
			anything := time.Now().Add(time.Hour)
			return l.phase(ctx, service, func(sys system) error { return got.table(ctx, sys, anything) })
		}
		lines, err = compare(l.rounds, []side{{name: fmt.Sprintf("%d jobs", l.rows), measure: full}, {name: "empty", measure: empty}},
			largeAccepted, largeSustained, largeRead)
		return err
	})
	return lines, err
}

// table leaves no job to be done. It reads random jobs of the client that were created before the given moment.
func (got sample) table(ctx context.Context, sys system, before time.Time) (err error) {
	stack.Sleep(ctx, quiet)
	if got[largeSustained], _, err = sys.sustained(ctx); err != nil {
		return err
	}
	stack.Sleep(ctx, quiet)
	began := time.Now()
	accepted, err := closed{clients: clients, during: sys.lab.duration}.submit(ctx, sys.target)
	if err != nil {
		return err
	}
	got[largeAccepted] = accepted.rate()
	stack.Sleep(ctx, quiet)
	rows, err := sys.db.conn.Query(ctx, `SELECT job_id FROM jobs WHERE client_id = (
		SELECT client_id FROM jobs ORDER BY created_at DESC LIMIT 1) AND created_at < $1 ORDER BY random() LIMIT 5000`, before)
	if err != nil {
		return err
	}
	reads, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*target, error) {
		var id uuid.UUID
		err := row.Scan(&id)
		return &target{url: sys.url + "/" + id.String(), key: sys.key}, err
	})
	if err == nil && len(reads) == 0 {
		err = errors.New("there is no job to read")
	}
	if err != nil {
		return err
	}
	turn := time.NewTicker(readPause)
	defer turn.Stop()
	read, err := closed{clients: readClients, during: sys.lab.duration, admit: func(ctx context.Context) error {
		select {
		case <-turn.C:
		case <-ctx.Done():
		}
		return nil
	}}.send(ctx, func(i int) *target { return reads[i%len(reads)] })
	if got[largeRead] = quantile(read.latency, 0.99); err != nil {
		return err
	}
	return sys.withWorker(ctx, func() error { return sys.db.allFinished(ctx, began, accepted.accepted) })
}

// fill lets the service finish one job and copies its rows.
func fill(ctx context.Context, sys system) error {
	began := time.Now()
	if _, err := (closed{clients: 1, jobs: 1}).submit(ctx, sys.target); err != nil {
		return err
	}
	if err := sys.withWorker(ctx, func() error { return sys.db.allFinished(ctx, began, 1) }); err != nil {
		return err
	}
	var id uuid.UUID
	if err := sys.db.conn.QueryRow(ctx, "SELECT job_id FROM jobs").Scan(&id); err != nil {
		return err
	}
	fmt.Printf("  filling the tables with %d finished jobs\n", sys.lab.rows)
	return copyJobs(ctx, sys.db.conn, id, sys.lab.rows)
}

// copyJobStatement copies the rows of the finished job $4 for each of the numbers $1 to $2, each $3 older than the last. One of 200
// stays with the job's client.
//
//go:embed copy_jobs.sql
var copyJobStatement string

// copyJobs leaves the tables as they are after a vacuum and a checkpoint. Its commits need not be durable, and it fires no triggers.
func copyJobs(ctx context.Context, conn *pgx.Conn, id uuid.UUID, jobs int) error {
	_, err := conn.Exec(ctx, "SET session_replication_role = replica; SET synchronous_commit = off; SET jit = off")
	for first := 1; first <= jobs && err == nil; first += copyChunk {
		_, err = conn.Exec(ctx, copyJobStatement, first, min(first+copyChunk-1, jobs), tableAge/time.Duration(jobs), id)
	}
	for _, sql := range []string{"RESET ALL", "VACUUM ANALYZE jobs, events, reports, results", "CHECKPOINT"} {
		if err == nil {
			_, err = conn.Exec(ctx, sql)
		}
	}
	return err
}
