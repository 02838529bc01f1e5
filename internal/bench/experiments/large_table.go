package experiments

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	readRate    = 500.0 // GET requests a second, far from the limit
	readClients = 32
	// tableAge is how far back the finished jobs go: they are kept for 30 days.
	tableAge  = 29 * 24 * time.Hour
	copyChunk = 5000 // jobs of one transaction
)

// tableTurn is what was measured on one side.
type tableTurn struct {
	path     lab.Path
	accepted loadgen.Load
	read99   float64 // ms
}

func (t tableTurn) String() string {
	return fmt.Sprintf("%v\n    accepted %.0f/s without workers, GET job p99 %.2f ms at %.0f/s", t.path, t.accepted.Rate(), t.read99, readRate)
}

// LargeTable measures submission, the whole path and reading with many finished jobs in
// the tables and with none.
func LargeTable(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	service := l.Programs[0]
	err = l.WithDatabase(ctx, func(large *lab.Database) error {
		if err := l.Serve(ctx, large, service, func(sys lab.System) error { return fill(ctx, l, sys) }); err != nil {
			return err
		}
		filled := time.Now()
		got, err := figures.InTurns(l.Rounds,
			figures.Side[tableTurn]{Name: "large", Measure: func() (t tableTurn, err error) {
				err = l.Serve(ctx, large, service, func(sys lab.System) error { return t.measure(ctx, l, sys, filled) })
				return t, err
			}},
			figures.Side[tableTurn]{Name: "empty", Measure: func() (t tableTurn, err error) {
				err = l.Phase(ctx, service, func(sys lab.System) error { return t.measure(ctx, l, sys, time.Now().Add(time.Hour)) })
				return t, err
			}})
		name := fmt.Sprintf("%d finished jobs in the tables: ", l.Rows)
		list = []figures.Figure{
			figures.New(name+"accepted, jobs/s", got, func(t tableTurn) float64 { return t.accepted.Rate() }),
			figures.New(name+"submitted and finished, jobs/s", got, func(t tableTurn) float64 { return t.path.Finished }),
			figures.New(name+"GET job, p99, ms", got, func(t tableTurn) float64 { return t.read99 }),
		}
		return err
	})
	return list, err
}

// measure takes one side through the phases, and leaves no job to be done. What is read was created before the given moment.
func (t *tableTurn) measure(ctx context.Context, l *lab.Lab, sys lab.System, before time.Time) error {
	err := sys.WithWorker(ctx, func(worker *stack.Process) (err error) {
		t.path, err = l.Sustained(ctx, sys, worker)
		return err
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if t.accepted, err = (loadgen.Closed{Clients: lab.Clients, During: l.Duration}).Submit(ctx, sys.Target); err != nil {
		return err
	}
	lab.Pause(ctx, lab.Quiet)
	if t.read99, err = readJobs(ctx, l, sys, before); err != nil {
		return err
	}
	return sys.WithWorker(ctx, func(*stack.Process) error {
		return sys.DB.AllFinished(ctx, began, t.accepted.Accepted)
	})
}

// readJobs reads random jobs of the client that were created before the given moment.
func readJobs(ctx context.Context, l *lab.Lab, sys lab.System, before time.Time) (p99 float64, err error) {
	rows, err := sys.DB.Conn.Query(ctx, `SELECT job_id FROM jobs WHERE client_id = (
		SELECT client_id FROM jobs ORDER BY created_at DESC LIMIT 1) AND created_at < $1 ORDER BY random() LIMIT 5000`, before)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err == nil && len(ids) == 0 {
		err = errors.New("there is no job to read")
	}
	if err != nil {
		return 0, err
	}
	client := loadgen.NewClient(readClients)
	defer client.CloseIdleConnections()
	latency, err := loadgen.Paced(ctx, readRate, l.Duration, func(i int) error {
		return loadgen.Read(client, sys.URL+"/"+ids[i%len(ids)].String(), sys.Key)
	})
	return loadgen.Quantile(latency, 99), err
}

// fill lets the service finish one job and copies its rows.
func fill(ctx context.Context, l *lab.Lab, sys lab.System) error {
	began := time.Now()
	if _, err := (loadgen.Closed{Clients: 1, Jobs: 1}).Submit(ctx, sys.Target); err != nil {
		return err
	}
	err := sys.WithWorker(ctx, func(*stack.Process) error { return sys.DB.AllFinished(ctx, began, 1) })
	if err != nil {
		return err
	}
	var id uuid.UUID
	if err := sys.DB.Conn.QueryRow(ctx, "SELECT job_id FROM jobs").Scan(&id); err != nil {
		return err
	}
	fmt.Printf("  filling the tables with %d finished jobs\n", l.Rows)
	if err := copyJobs(ctx, sys.DB.Conn, id, l.Rows); err != nil {
		return err
	}
	fmt.Printf("  filled in %v\n", time.Since(began).Round(time.Second))
	return nil
}

// copyJobStatement copies the rows of job $4, which has finished, once for each of the numbers
// $1 to $2, each older than the one before by $3. One of 200 stays with the job's client.
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
