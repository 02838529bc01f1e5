package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// unlimited lets the service have more jobs than it allows by default.
var unlimited = []string{"FORGERUN_MAX_ACTIVE_JOBS=100000000", "FORGERUN_MAX_QUEUE_SIZE=100000000"}

// turn is what was measured on one side of a comparison.
type turn struct {
	accepted float64       // per second, no worker
	finished float64       // per second, of a backlog
	read99   time.Duration // GET job; 0: not measured
}

func (t turn) String() string {
	text := fmt.Sprintf("accepted %.0f/s, finished %.0f/s", t.accepted, t.finished)
	if t.read99 > 0 {
		text += fmt.Sprintf(", GET job p99 %.2f ms", loadgen.Milliseconds(t.read99))
	}
	return text
}

func turnAccepted(t turn) float64 { return t.accepted }
func turnFinished(t turn) float64 { return t.finished }
func turnRead99(t turn) float64   { return loadgen.Milliseconds(t.read99) }

// comparison is one of tables with many rows (1) against empty ones (0).
type comparison [2][]turn

// compare measures both on the same servers, in turns: A B B A.
func compare(l *lab.Lab, empty, many func() (turn, error)) (c comparison, err error) {
	err = lab.InTurns(max(2, l.Options.Rounds), len(c), func(_, side int) error {
		name := []string{"empty", "seeded"}[side]
		t, err := []func() (turn, error){empty, many}[side]()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.Printf("%s: %v", name, t)
		c[side] = append(c[side], t)
		return nil
	})
	return c, err
}

// against gives the median of the rounds' ratios, and the medians behind it.
func (c comparison) against(of func(turn) float64, format string) (ratio float64, note string) {
	return figures.Compare(c[1], c[0], of, format)
}

// seeder writes jobs for the client that owns the database's rows.
type seeder func(ctx context.Context, d *lab.Database, jobs int) error

// withSeeded uses a database that the seeding has filled for a new client.
func withSeeded(ctx context.Context, l *lab.Lab, seed seeder, jobs int, use func(*lab.Database) error) error {
	d, err := l.NewDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	// The service makes the client, and is stopped while the tables are filled.
	err = lab.Serve(ctx, d, l.Options, l.StartService, func(sys lab.System) error {
		d.Key, d.Client = sys.Key, sys.Client
		return nil
	})
	if err != nil {
		return err
	}
	l.Printf("seeding %d jobs", jobs)
	began := time.Now()
	if err := seed(ctx, d, jobs); err != nil {
		return err
	}
	size, err := d.Number(ctx, "pg_database_size(current_database())")
	if err != nil {
		return err
	}
	l.Printf("seeded in %v, %.2f GB", time.Since(began).Round(time.Second), size/1e9)
	return use(d)
}

// accept measures submission without workers.
func accept(ctx context.Context, l *lab.Lab, sys lab.System) (perSecond float64, err error) {
	load, err := loadgen.Closed{Clients: l.Options.Clients, During: l.Options.Duration}.Submit(ctx, sys.Target)
	return load.Rate(), err
}

// warmup is how long workers run before it counts what they do.
const warmup = 2 * time.Second

// finish measures how quickly the workers that run now finish what waits. The
// times are those of the jobs, so it may end early.
func finish(ctx context.Context, l *lab.Lab, d *lab.Database) (perSecond float64, err error) {
	lab.Pause(ctx, warmup)
	from := time.Now()
	lab.Pause(ctx, l.Options.Duration)
	var n, seconds float64
	err = d.Conn.QueryRow(ctx, `SELECT count(*)::float8, coalesce(extract(epoch FROM max(finished_at) - min(finished_at)), 0)::float8
		FROM jobs WHERE finished_at BETWEEN $1 AND $2`, from, from.Add(l.Options.Duration)).Scan(&n, &seconds)
	if err == nil && n < 100 {
		err = fmt.Errorf("only %.0f jobs have finished within %v", n, l.Options.Duration)
	}
	return n / seconds, err
}

// drained waits until no job is left to be done; ErrUnfinished: some are, still.
func drained(ctx context.Context, d *lab.Database) error {
	err := lab.Poll(ctx, 10*time.Minute, "all jobs finished", func() (bool, error) {
		left, err := d.Number(ctx, `SELECT count(*) FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT 1) w`)
		if err == nil && left == 0 {
			left, err = d.Number(ctx, "SELECT count(*) FROM jobs WHERE worker_id IS NOT NULL")
		}
		return left == 0, err
	})
	if errors.Is(err, lab.ErrLate) {
		return errors.Join(lab.ErrUnfinished, err)
	}
	return err
}

const (
	readRate    = 500.0 // GET requests a second, far from the limit
	readClients = 32
)

// read measures GET of random jobs of the client that were created before the
// given moment.
func read(ctx context.Context, l *lab.Lab, d *lab.Database, sys lab.System, before time.Time) (p99 time.Duration, err error) {
	loop := loadgen.OpenLoop{Rate: readRate, During: l.Options.Duration, Connections: readClients}
	wanted := int(readRate * loop.During.Seconds())
	var ids []string
	err = d.Conn.QueryRow(ctx, `SELECT array_agg(job_id::text) FROM (
		SELECT job_id FROM jobs WHERE client_id = $1 AND created_at < $2 ORDER BY random() LIMIT $3) j`, sys.Client, before, wanted).Scan(&ids)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, errors.New("there is no job to read")
	}
	requests := make(chan string, wanted+1)
	for i := range wanted + 1 {
		requests <- sys.URL + "/" + ids[i%len(ids)]
	}
	reading := loadgen.NewClient(readClients)
	defer reading.CloseIdleConnections()
	got := loop.Run(ctx, func() func() int {
		s := loadgen.NewSubmission(reading, sys.Target)
		s.Request.Header.SetMethod(fasthttp.MethodGet)
		s.Request.ResetBody()
		return func() int {
			s.Request.SetRequestURI(<-requests)
			return s.Status()
		}
	})
	if got.Count(http.StatusOK) != got.Offered {
		return 0, fmt.Errorf("reading jobs: %v", &got)
	}
	return got.FromDue.Quantile(99, http.StatusOK), nil
}
