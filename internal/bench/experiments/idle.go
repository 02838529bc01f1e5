package experiments

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	idleJobs = 300
	// idleWindow is how long nothing is done while the CPU time is taken.
	idleWindow = 10 * time.Second
)

// idle is what one program did in one round.
type idle struct {
	starts *hdrhistogram.Histogram // from a request to RUNNING
	worker float64                 // CPU of the process alone, in percent of a core
	cpu    float64                 // of the worker and on its behalf
}

func (i idle) p50() float64 { return loadgen.Quantile(i.starts, 50) }
func (i idle) p99() float64 { return loadgen.Quantile(i.starts, 99) }

func (i idle) String() string {
	return fmt.Sprintf("%d single jobs RUNNING after p50 %.2f ms, p99 %.2f ms; at rest a worker takes %.2f %% of a core, "+
		"with Postgres and Redis %.2f %%", idleJobs, i.p50(), i.p99(), i.worker, i.cpu)
}

// Idle measures how soon a single job runs when there is nothing else to do, and
// what waiting for it costs.
func Idle(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	got, err := figures.InTurns(l.Rounds, programs(ctx, l, measureIdle)...)
	if err != nil {
		return nil, err
	}
	return []figures.Figure{
		figures.New("Submit to RUNNING at rest, p50, ms", got, idle.p50),
		figures.New("Submit to RUNNING at rest, p99, ms", got, idle.p99),
		figures.New("CPU of an idle worker, % of a core", got, func(i idle) float64 { return i.worker }),
		figures.New("CPU of an idle worker and on its behalf, % of a core", got, func(i idle) float64 { return i.cpu }),
	}, nil
}

func measureIdle(ctx context.Context, l *lab.Lab, s lab.Service) (i idle, err error) {
	err = l.Phase(ctx, s, func(sys lab.System) error {
		err := sys.WithWorker(ctx, func(worker *stack.Process) (err error) {
			lab.Pause(ctx, lab.Quiet)
			if i.starts, err = startsOneByOne(ctx, sys, idleJobs); err == nil {
				used := l.AtRest(ctx, idleWindow, sys, worker)
				i.worker, i.cpu = 100*used.Worker/used.Took, used.CoreShare()
			}
			return err
		})
		if err == nil {
			i.cpu -= l.AtRest(ctx, idleWindow, sys, nil).CoreShare()
		}
		return err
	})
	return i, err
}

// startsOneByOne submits single jobs with random gaps and returns the times from a request to the start of its job.
// A gap is longer than a worker waits between two looks at the queue, so one job is over before the next.
func startsOneByOne(ctx context.Context, sys lab.System, n int) (*hdrhistogram.Histogram, error) {
	client := loadgen.NewClient(1)
	defer client.CloseIdleConnections()
	s := loadgen.NewSubmission(client, sys.Target)
	sent := make([]time.Time, n)
	began := time.Now()
	for i := range sent {
		if !stack.Sleep(ctx, time.Duration(30+rand.IntN(20))*time.Millisecond) {
			return nil, ctx.Err()
		}
		sent[i] = time.Now()
		if err := s.Send(); err != nil {
			return nil, err
		}
	}
	if err := sys.DB.AllFinished(ctx, began, n); err != nil {
		return nil, err
	}
	rows, err := sys.DB.Conn.Query(ctx, "SELECT started_at FROM jobs WHERE created_at >= $1 ORDER BY created_at", began)
	if err != nil {
		return nil, err
	}
	started, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	starts := loadgen.NewHistogram()
	for i, at := range started {
		loadgen.Record(starts, at.Sub(sent[i]))
	}
	return starts, err
}
