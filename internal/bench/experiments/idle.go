package experiments

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/process"
)

// Targets at idle.
const (
	idle50Target  = 4.0  // ms
	idle99Target  = 12.0 // ms
	idleCPUTarget = 0.5  // % of a core
)

const (
	idleJobs = 500
	// idleWindow is how long nothing is done while the CPU time is taken.
	idleWindow = 10 * time.Second
)

// Idle measures how soon a single job runs when there is nothing else to do, and
// what waiting for it costs.
func Idle(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	var p50, p99, cpu []float64
	err := l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
		for range l.Options.Rounds {
			var with lab.Usage
			err := lab.WithWorker(sys, func(worker *lab.Program) error {
				lab.Pause(ctx, lab.Quiet)
				starts, err := startsOneByOne(ctx, d, sys, idleJobs)
				if err != nil {
					return err
				}
				at := func(q float64) float64 { return loadgen.Milliseconds(loadgen.Quantile(starts, q)) }
				p50, p99 = append(p50, at(50)), append(p99, at(99))
				l.Printf("%d single jobs: submit to RUNNING p50 %.2f ms, p99 %.2f, at most %.2f", idleJobs, at(50), at(99), at(100))
				with = l.Rest(ctx, idleWindow, sys, worker)
				return nil
			})
			if err != nil {
				return err
			}
			without := l.Rest(ctx, idleWindow, sys)
			cpu = append(cpu, with.CoreShare()-without.CoreShare())
			l.Printf("at rest: with a worker %s; without it %s", with.PerCore(), without.PerCore())
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return []figures.Figure{
		figures.AtMost("submit to RUNNING at idle, p50", idle50Target, figures.Median(p50), "ms", fmt.Sprintf("%d single jobs", idleJobs)),
		figures.AtMost("submit to RUNNING at idle, p99", idle99Target, figures.Median(p99), "ms", ""),
		figures.AtMost("CPU of an idle worker process and on its behalf", idleCPUTarget, figures.Median(cpu), "% of a core",
			fmt.Sprintf("with it less without it, %v each", idleWindow)),
	}, nil
}

// startsOneByOne submits single jobs with random gaps, long enough for the one
// before to be over, and gives the times from a request to the start of its job.
func startsOneByOne(ctx context.Context, d *lab.Database, sys lab.System, n int) (*hdrhistogram.Histogram, error) {
	client := loadgen.NewClient(1)
	defer client.CloseIdleConnections()
	s := loadgen.NewSubmission(client, sys.Target)
	sent := make(map[uuid.UUID]time.Time, n)
	began := time.Now()
	for range n {
		if !process.Sleep(ctx, time.Duration(5+rand.IntN(10))*time.Millisecond) {
			return nil, ctx.Err()
		}
		at := time.Now()
		if err := s.Send(); err != nil {
			return nil, err
		}
		id, err := s.JobID()
		if err != nil {
			return nil, err
		}
		sent[id] = at
	}
	if err := d.AllFinished(ctx, began, n, time.Minute); err != nil {
		return nil, err
	}
	rows, err := d.Conn.Query(ctx, "SELECT job_id, started_at FROM jobs WHERE created_at >= $1", began)
	if err != nil {
		return nil, err
	}
	starts := loadgen.NewHistogram()
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		loadgen.Record(starts, at.Sub(sent[id]))
		return nil
	})
	return starts, err
}
