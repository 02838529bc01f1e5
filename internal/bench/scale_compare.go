package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/valyala/fasthttp"
)

// A comparison is one of tables with many rows against empty ones, on the same
// servers, in turns: A B B A.

// roomy lets the service have more jobs than it allows by default.
var roomy = []string{"FORGERUN_MAX_ACTIVE_JOBS=100000000", "FORGERUN_MAX_QUEUE_SIZE=100000000"}

// turn is what was measured on one side of a comparison.
type turn struct {
	accepted float64       // per second, no worker
	finished float64       // per second, of a backlog
	read99   time.Duration // GET job; 0: not measured
}

func (t turn) String() string {
	text := fmt.Sprintf("accepted %.0f/s, finished %.0f/s", t.accepted, t.finished)
	if t.read99 > 0 {
		text += fmt.Sprintf(", GET job p99 %.2f ms", milliseconds(t.read99))
	}
	return text
}

func turnAccepted(t turn) float64 { return t.accepted }
func turnFinished(t turn) float64 { return t.finished }
func turnRead99(t turn) float64   { return milliseconds(t.read99) }

// against gives the median of the rounds' ratios, and the medians behind it in the
// format.
func against(empty, many []turn, of func(turn) float64, format string) (ratio float64, note string) {
	a, b := column(empty, of), column(many, of)
	return median(ratios(b, a)), fmt.Sprintf(format+" to "+format, median(b), median(a))
}

// compare measures both sides in turns, in an order that turns round each time.
func (l *lab) compare(empty, many func() (turn, error)) (empties, manies []turn, err error) {
	for round := range max(2, l.o.rounds) {
		for i := range 2 {
			name, measure, into := "empty", empty, &empties
			if i != round%2 {
				name, measure, into = "seeded", many, &manies
			}
			t, err := measure()
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			l.say("%s: %v", name, t)
			*into = append(*into, t)
		}
	}
	return empties, manies, nil
}

// seededDatabase makes a database with rows in it, and an API key of the client
// that most of them belong to.
func (l *lab) seededDatabase(ctx context.Context, seed func(*database, uuid.UUID) error) (d *database, key string, err error) {
	if d, err = l.newDatabase(ctx); err != nil {
		return nil, "", err
	}
	// The service makes the client, and is not there while the tables are filled.
	err = l.serve(ctx, d, "", nil, func(sys system) error {
		key = sys.key
		return nil
	})
	if err != nil {
		return d, "", err
	}
	client, err := clientOf(ctx, d, key)
	if err != nil {
		return d, "", err
	}
	began := time.Now()
	if err := seed(d, client); err != nil {
		return d, "", err
	}
	size, err := d.number(ctx, "pg_database_size(current_database())")
	l.say("seeded in %v, %.2f GB", time.Since(began).Round(time.Second), size/1e9)
	return d, key, err
}

// serve runs an api process on the database for as long as it is used, for the
// owner of the key, or for a new client if there is none.
func (l *lab) serve(ctx context.Context, d *database, key string, env []string, use func(system) error) error {
	o := l.o
	o.env = append(append([]string{}, l.o.env...), env...)
	sys, err := l.startForgeRun(ctx, d, o)
	if err != nil {
		return errors.Join(err, sys.api.stop())
	}
	if key != "" {
		sys.key = key
	}
	return errors.Join(use(sys), sys.api.stop())
}

// employ runs so many worker processes for as long as they are used.
func employ(sys system, n int, use func([]*program) error) (err error) {
	var workers []*program
	for range n {
		w, failure := sys.startWorker()
		workers, err = append(workers, w), errors.Join(err, failure)
	}
	if err == nil {
		err = use(workers)
	}
	for _, w := range workers {
		err = errors.Join(err, w.stop())
	}
	return err
}

// accept measures submission without workers.
func (l *lab) accept(ctx context.Context, sys system) (perSecond float64, err error) {
	load, err := generate(ctx, sys, l.o.clients, l.o.duration, nil)
	return load.rate(), err
}

// warming is how long workers run before it counts what they do.
const warming = 2 * time.Second

// finish measures how quickly the workers that run now finish what waits. The
// times are those of the jobs, so it may end early.
func (l *lab) finish(ctx context.Context, d *database) (perSecond float64, err error) {
	pause(ctx, warming)
	from := time.Now()
	pause(ctx, l.o.duration)
	var n, seconds float64
	err = d.conn.QueryRow(ctx, `SELECT count(*)::float8, coalesce(extract(epoch FROM max(finished_at) - min(finished_at)), 0)::float8
		FROM jobs WHERE finished_at BETWEEN $1 AND $2`, from, from.Add(l.o.duration)).Scan(&n, &seconds)
	if err == nil && n < 100 {
		err = fmt.Errorf("only %.0f jobs have finished within %v", n, l.o.duration)
	}
	return n / seconds, err
}

// drained waits until no job is left to be done; errUnfinished: some are, still.
func drained(ctx context.Context, d *database) error {
	err := poll(ctx, drainedWithin, "all jobs finished", func() (bool, error) {
		left, err := d.number(ctx, `SELECT count(*) FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT 1) w`)
		if err != nil || left > 0 {
			return false, err
		}
		left, err = d.number(ctx, "SELECT count(*) FROM jobs WHERE worker_id IS NOT NULL")
		return left == 0, err
	})
	if errors.Is(err, errLate) {
		return errors.Join(errUnfinished, err)
	}
	return err
}

const drainedWithin = 10 * time.Minute

const (
	readRate    = 500.0 // GET requests a second, far from the limit
	readClients = 32
)

// read measures GET of random jobs of the client that were created before the
// given moment.
func (l *lab) read(ctx context.Context, d *database, sys system, before time.Time) (p99 time.Duration, err error) {
	client, err := clientOf(ctx, d, sys.key)
	if err != nil {
		return 0, err
	}
	during := l.o.duration
	wanted := int(readRate * during.Seconds())
	var ids []string
	err = d.conn.QueryRow(ctx, `SELECT array_agg(job_id::text) FROM (SELECT job_id FROM jobs WHERE client_id = $1 AND created_at < $2 ORDER BY random() LIMIT $3) j`,
		client, before, wanted).Scan(&ids)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, errors.New("there is no job to read")
	}
	requests := make(chan string, wanted+1)
	for i := range wanted + 1 {
		requests <- sys.url + "/" + ids[i%len(ids)]
	}
	reading := newClient(readClients)
	defer reading.CloseIdleConnections()
	seen := pace(ctx, pacing{rate: readRate, during: during, connections: readClients, patience: time.Minute}, func() func() int {
		s := newSubmission(reading, sys)
		s.request.Header.SetMethod(fasthttp.MethodGet)
		s.request.ResetBody()
		return func() int {
			s.request.SetRequestURI(<-requests)
			if err := reading.Do(s.request, s.response); err != nil {
				return 0
			}
			return s.response.StatusCode()
		}
	})
	if seen.answers(fasthttp.StatusOK) != seen.offered {
		return 0, fmt.Errorf("reading jobs: %v", &seen)
	}
	return quantile(seen.fromDue[fasthttp.StatusOK], 99), nil
}
