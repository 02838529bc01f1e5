package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// Targets with many jobs waiting, in terms of empty tables.
const (
	queuedJobs         = 1_000_000
	queuedRateTarget   = 0.85
	redisTarget        = 64.0 // MB
	displacementTarget = 1000 // jobs
	busyAgainTarget    = 5.0  // s
)

// queued is a database with jobs that wait, and its Redis.
type queued struct {
	lab   *lab.Lab
	d     *lab.Database
	redis *redis.Client
	jobs  int
}

func withQueued(ctx context.Context, l *lab.Lab, use func(queued) error) error {
	q := queued{lab: l, jobs: l.Options.Jobs(queuedJobs)}
	if err := needDisk(uint64(q.jobs)*bytesOfQueued + spareDisk); err != nil {
		return err
	}
	return withSeeded(ctx, l, seedQueuedJobs, q.jobs, func(d *lab.Database) (err error) {
		q.d = d
		if q.redis, err = d.Redis(); err != nil {
			return err
		}
		defer func() { _ = q.redis.Close() }()
		return use(q)
	})
}

func (q queued) serve(ctx context.Context, use func(lab.System) error) error {
	return lab.Serve(ctx, q.d, q.lab.Options.With(unlimited...), q.lab.StartService, use)
}

// Queued measures submission and finishing with a million jobs waiting and with
// none, whether these start in their order, what Redis needs for them, and how soon
// the workers have work again when Redis has lost everything.
func Queued(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	err = withQueued(ctx, l, func(q queued) (err error) {
		if err := q.redis.FlushAll(ctx).Err(); err != nil { // the queues of other experiments
			return err
		}
		list, err = q.measure(ctx)
		return err
	})
	return list, err
}

func (q queued) measure(ctx context.Context) ([]figures.Figure, error) {
	var memory float64 // the most that Redis grew by while the seeded jobs were there
	c, err := compare(q.lab, func() (t turn, err error) {
		err = q.lab.Phase(ctx, q.lab.Options, q.lab.StartService, func(d *lab.Database, sys lab.System) error {
			return q.turn(ctx, d, sys, &t)
		})
		return t, err
	}, func() (turn, error) {
		t, grown, err := q.seededTurn(ctx)
		memory = max(memory, grown)
		return t, err
	})
	if err != nil {
		return nil, err
	}
	displacement, started, err := displacement(ctx, q.d)
	if err != nil {
		return nil, err
	}
	before, again, err := q.flush(ctx)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s queued jobs: ", short(q.jobs))
	accepted, acceptedNote := c.against(turnAccepted, "%.0f/s")
	finished, finishedNote := c.against(turnFinished, "%.0f/s")
	return []figures.Figure{
		figures.AtLeast(name+"accepted/s", queuedRateTarget, accepted, "x empty", acceptedNote),
		figures.AtLeast(name+"finished/s of the backlog", queuedRateTarget, finished, "x empty", finishedNote),
		figures.AtMost(name+"growth of Redis", redisTarget, memory/1e6, "MB", "the most that used_memory grew by in any phase"),
		figures.AtMost(name+"largest displacement from FIFO", displacementTarget, displacement, "jobs",
			fmt.Sprintf("of %.0f started, in order of run_at", started)),
		figures.AtMost(name+"workers busy again after FLUSHALL", busyAgainTarget, again, "s", fmt.Sprintf("half of the %.0f/s before", before)),
	}, nil
}

// turn measures one side.
func (q queued) turn(ctx context.Context, d *lab.Database, sys lab.System, t *turn) (err error) {
	if t.accepted, err = accept(ctx, q.lab, sys); err != nil {
		return err
	}
	return lab.WithWorker(sys, func(*lab.Program) (err error) {
		t.finished, err = finish(ctx, q.lab, d)
		return err
	})
}

// seededTurn measures the side with the jobs, beginning with an empty Redis.
func (q queued) seededTurn(ctx context.Context) (t turn, grown float64, err error) {
	if err := q.redis.FlushDB(ctx).Err(); err != nil {
		return t, 0, err
	}
	before, err := lab.RedisMemory(ctx, q.redis)
	if err != nil {
		return t, 0, err
	}
	watching, stop := context.WithCancel(ctx)
	most := make(chan float64, 1)
	go func() { most <- q.watchMemory(watching) }()
	err = q.serve(ctx, func(sys lab.System) error { return q.turn(ctx, q.d, sys, &t) })
	stop()
	return t, <-most - before, err
}

// watchMemory gives the most that Redis had allocated until ctx ended.
func (q queued) watchMemory(ctx context.Context) (most float64) {
	for ctx.Err() == nil {
		if now, err := lab.RedisMemory(ctx, q.redis); err == nil {
			most = max(most, now)
		}
		lab.Pause(ctx, 100*time.Millisecond)
	}
	return most
}

// displacement is how far a job's rank among those that were started is from its rank
// among all jobs in order of their time, at most.
func displacement(ctx context.Context, d *lab.Database) (most, started float64, err error) {
	err = d.Conn.QueryRow(ctx, `SELECT coalesce(max(abs(wanted - got)), 0)::float8, count(*)::float8 FROM (
		SELECT wanted, row_number() OVER (ORDER BY assigned_at, wanted) AS got FROM (
			SELECT assigned_at, row_number() OVER (ORDER BY run_at, job_id) AS wanted FROM jobs) j
		WHERE assigned_at IS NOT NULL) s`).Scan(&most, &started)
	if err == nil && started == 0 {
		err = errors.New("no job was started")
	}
	return most, started, err
}

// flush empties Redis under a busy worker, and gives the rate before and the time
// in seconds until it is half of that again with jobs that were claimed after it.
func (q queued) flush(ctx context.Context) (before, again float64, err error) {
	const watched = 15 * time.Second
	err = q.serve(ctx, func(sys lab.System) error {
		return lab.WithWorker(sys, func(*lab.Program) error {
			lab.Pause(ctx, warmup)
			began := time.Now()
			lab.Pause(ctx, q.lab.Options.Duration)
			flushed := time.Now()
			if err := q.redis.FlushAll(ctx).Err(); err != nil {
				return err
			}
			lab.Pause(ctx, watched)
			n, err := q.d.Number(ctx, "SELECT count(*) FROM jobs WHERE finished_at BETWEEN $1 AND $2", began, flushed)
			if err != nil {
				return err
			}
			before = n / flushed.Sub(began).Seconds()
			again, err = busyAgain(ctx, q.d, flushed, before/2, watched)
			q.lab.Printf("%.0f/s before FLUSHALL, half of it again after %.2f s", before, again)
			return err
		})
	})
	return before, again, err
}

// busyAgain is when the first half second ends in which jobs that were claimed
// since the given moment finish at that rate; the whole time if there is none.
func busyAgain(ctx context.Context, d *lab.Database, since time.Time, rate float64, within time.Duration) (seconds float64, err error) {
	const slice = 0.5
	return d.Number(ctx, `SELECT coalesce((min(n) + 1) * $3::float8, $5::float8) FROM (
		SELECT floor(extract(epoch FROM finished_at - $1) / $3::float8) AS n FROM jobs
		WHERE finished_at > $1 AND finished_at < $2 AND assigned_at > $1 GROUP BY 1 HAVING count(*) >= $4::float8 * $3::float8) s`,
		since, since.Add(within), slice, rate, within.Seconds())
}

// Target of a start with many live jobs.
const (
	startTarget = 1.0 // s
	startRounds = 5
)

// Start starts an api process with a million live jobs in the tables and an empty
// Redis, again and again.
func Start(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	err = withQueued(ctx, l, func(q queued) error {
		var sys lab.System
		if err := q.serve(ctx, func(s lab.System) error { sys = s; return nil }); err != nil {
			return err
		}
		var ready, accepted []float64
		for range startRounds {
			if err := q.redis.FlushDB(ctx).Err(); err != nil {
				return err
			}
			r, a, err := startOnce(ctx, l, sys)
			if err != nil {
				return err
			}
			l.Printf("ready after %.0f ms, first job accepted after %.0f", loadgen.Milliseconds(r), loadgen.Milliseconds(a))
			ready, accepted = append(ready, r.Seconds()), append(accepted, a.Seconds())
		}
		list = []figures.Figure{figures.AtMost(fmt.Sprintf("start of an api process with %s live jobs, ready", short(q.jobs)), startTarget,
			figures.Median(ready), "s", fmt.Sprintf("Redis empty; first job accepted after %.2f s", figures.Median(accepted)))}
		return nil
	})
	return list, err
}

// startOnce starts the api process anew, at the address that it had, and gives the
// times from its start until it is ready and until it has accepted a job.
func startOnce(ctx context.Context, l *lab.Lab, sys lab.System) (ready, accepted time.Duration, err error) {
	began := time.Now()
	api, err := l.Launch(sys, "api")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, api.Stop()) }()
	client := &http.Client{Timeout: lab.ReadyWithin}
	defer client.CloseIdleConnections()
	err = api.Until(ctx, func() bool {
		response, err := client.Get(sys.Base + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	ready = time.Since(began)
	if err != nil {
		return ready, 0, err
	}
	submitting := loadgen.NewClient(1)
	defer submitting.CloseIdleConnections()
	err = loadgen.NewSubmission(submitting, sys.Target).Send()
	return ready, time.Since(began), err
}
