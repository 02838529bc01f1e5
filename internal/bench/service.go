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

	unfinishedJobs = 2000 // limit of unfinished jobs: enough to keep workers busy, few enough to finish within seconds
	idleJobs       = 300
	idleWindow     = 10 * time.Second
	readPause      = 2 * time.Millisecond // pause between GET requests, so that reads do not saturate the service
	readClients    = 32
	tableAge       = 29 * 24 * time.Hour // age of the oldest finished job; finished jobs are kept for 30 days
	copyChunk      = 5000                // jobs per transaction
)

func throughput(l *lab) {
	l.compare(l.programs(func(s service, got sample) {
		l.phase(s, func(sys system) {
			sys.submit(closed{clients: clients, during: l.warmup()})
			var accepted load
			used := sys.while(func() { accepted = sys.submit(closed{clients: clients, during: l.duration}) })
			fmt.Println("  accepting:", used)
			got[acceptedFigure], got[answerFigure] = accepted.rate(), quantile(accepted.latency, 0.99)
		})
		l.phase(s, func(sys system) { got[sustainedFigure], got[cpuFigure] = sys.sustained() })
	}), acceptedFigure, answerFigure, sustainedFigure, cpuFigure)
}

// sustained keeps a system with one worker as busy as possible, and returns when all accepted jobs have finished. `rate` is the number of
// jobs per second that finished after the warm-up. `cpu` is the CPU time in seconds for 1,000 jobs, without the load generator.
func (s system) sustained() (rate, cpu float64) {
	stop := s.start("worker", "")
	began := time.Now()
	room := semaphore.NewWeighted(unfinishedJobs)
	enter := func(ctx context.Context) error { return room.Acquire(ctx, 1) }
	var group errgroup.Group
	watching, end := context.WithCancel(s.ctx)
	group.Go(func() error { return watchFinished(watching, s.db.url, began, room.Release) })
	var sent load
	group.Go(func() (err error) {
		defer end()
		sent, err = closed{clients: clients, during: s.warmup() + s.duration, admit: enter}.submit(s.ctx, s.target)
		return err
	})
	stack.Sleep(s.ctx, s.warmup())
	used := s.while(func() { stack.Sleep(s.ctx, s.duration) })
	check(group.Wait())
	s.db.awaitFinished(began, sent.accepted)
	fmt.Println("  whole path:", used)
	jobs := s.db.number("SELECT count(*) FROM jobs WHERE finished_at >= $1 AND finished_at < $2", used.from, used.to)
	if jobs == 0 {
		check(errors.New("no job finished within the window"))
	}
	check(stop())
	return jobs / used.seconds(), used.service() / (jobs / 1000)
}

func watchFinished(ctx context.Context, url string, since time.Time, more func(int64)) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var known, finished int64
	for asked := time.Now(); stack.Sleep(ctx, max(100*time.Millisecond, 20*time.Since(asked))); {
		asked = time.Now()
		err := conn.QueryRow(ctx, "SELECT count(*) FROM jobs WHERE finished_at > $1", since).Scan(&finished)
		if err != nil && ctx.Err() == nil {
			return err
		}
		more(finished - known)
		known = finished
	}
	return nil
}

func idle(l *lab) {
	l.compare(l.programs(func(s service, got sample) {
		l.phase(s, func(sys system) {
			atRest := func() usage {
				l.sleep(quiet)
				return sys.while(func() { l.sleep(idleWindow) })
			}
			together := func(u usage) float64 { return 100 * u.of("worker", "Postgres", "Redis") / u.seconds() }
			stop := sys.start("worker", "")
			l.sleep(quiet)
			starts := sys.startsOneByOne()
			got[startP50], got[startP99] = quantile(starts, 0.5), quantile(starts, 0.99)
			used := atRest()
			check(stop())
			got[idleWorker], got[idleTogether] = 100*used.of("worker")/used.seconds(), together(used)-together(atRest())
		})
	}), startP50, startP99, idleWorker, idleTogether)
}

// startsOneByOne submits one job at a time and returns the latencies from request to start, in ms. It waits 30 to 50 ms before each job.
// A worker polls at shorter intervals, so each job ends before the next one is submitted.
func (s system) startsOneByOne() (starts []float64) {
	var sent []time.Time
	began := time.Now()
	s.submit(closed{clients: 1, jobs: idleJobs, admit: func(ctx context.Context) error {
		stack.Sleep(ctx, time.Duration(30+rand.IntN(20))*time.Millisecond)
		sent = append(sent, time.Now())
		return nil
	}})
	s.db.awaitFinished(began, idleJobs)
	rows := must(s.db.conn.Query(s.ctx, "SELECT started_at FROM jobs ORDER BY created_at"))
	for i, at := range must(pgx.CollectRows(rows, pgx.RowTo[time.Time])) {
		starts = append(starts, milliseconds(at.Sub(sent[i])))
	}
	return starts
}

func largeTable(l *lab) {
	service, large := l.services[0], l.database()
	l.serve(large, service, system.fill)
	filled := time.Now()
	l.compare([]side{
		{name: fmt.Sprintf("%d jobs", l.rows), measure: func(got sample) {
			l.serve(large, service, func(sys system) { got.table(sys, filled) })
		}},
		{name: "empty", measure: func(got sample) {
			anything := time.Now().Add(time.Hour)
			l.phase(service, func(sys system) { got.table(sys, anything) })
		}},
	}, largeAccepted, largeSustained, largeRead)
}

// table measures throughput and read latency for one side of largeTable. It reads random jobs that were created before the time `before`.
func (got sample) table(sys system, before time.Time) {
	sys.sleep(quiet)
	got[largeSustained], _ = sys.sustained()
	sys.sleep(quiet)
	began := time.Now()
	accepted := sys.submit(closed{clients: clients, during: sys.duration})
	got[largeAccepted] = accepted.rate()
	sys.sleep(quiet)
	rows := must(sys.db.conn.Query(sys.ctx, `SELECT job_id FROM jobs WHERE client_id = (
		SELECT client_id FROM jobs ORDER BY created_at DESC LIMIT 1) AND created_at < $1 ORDER BY random() LIMIT 5000`, before))
	reads := must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (*target, error) {
		var id uuid.UUID
		err := row.Scan(&id)
		return &target{url: sys.url + "/" + id.String(), key: sys.key}, err
	}))
	if len(reads) == 0 {
		check(errors.New("there is no job to read"))
	}
	turn := time.NewTicker(readPause)
	defer turn.Stop()
	read := must(closed{clients: readClients, during: sys.duration, admit: func(ctx context.Context) error {
		select {
		case <-turn.C:
		case <-ctx.Done():
		}
		return nil
	}}.send(sys.ctx, func(i int) *target { return reads[i%len(reads)] }))
	got[largeRead] = quantile(read.latency, 0.99)
	sys.start("worker", "")
	sys.db.awaitFinished(began, accepted.accepted)
}

func (s system) fill() {
	began := time.Now()
	s.submit(closed{clients: 1, jobs: 1})
	stop := s.start("worker", "")
	s.db.awaitFinished(began, 1)
	check(stop())
	var id uuid.UUID
	check(s.db.conn.QueryRow(s.ctx, "SELECT job_id FROM jobs").Scan(&id))
	fmt.Printf("  filling the tables with %d finished jobs\n", s.rows)
	check(copyJobs(s.ctx, s.db.conn, id, s.rows))
}

// copyJobStatement copies the finished job $4. The copies are numbered from $1 to $2. Copy n is older than the job by n * $3. One in 200
// copies belongs to the job's client, the others belong to 199 made-up clients.
//
//go:embed copy_jobs.sql
var copyJobStatement string

// To save time, copyJobs turns off triggers and synchronous commits.
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
