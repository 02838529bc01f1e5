package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	readRate    = 500.0 // GET requests a second, far from the limit
	readClients = 32
	tableAge    = 29 * 24 * time.Hour // of the oldest finished job: they are kept for 30 days
	copyChunk   = 5000                // jobs of one transaction

	largeAccepted  = "Large table: accepted, jobs/s"
	largeSustained = "Large table: submitted and finished, jobs/s"
	largeRead      = "Large table: GET job, p99, ms"
)

// tableExperiment measures submission, the whole path and reading with many finished jobs in the tables and with none.
func tableExperiment(ctx context.Context, l *lab) (list []figure, err error) {
	service := l.services[0]
	return list, l.withDatabase(ctx, func(large *database) error {
		if err := l.serve(ctx, large, service, func(sys system) error { return fill(ctx, l, sys) }); err != nil {
			return err
		}
		filled := time.Now()
		list, err = inTurns(l.rounds, []side{
			{name: fmt.Sprintf("%d jobs", l.rows), measure: func() (got sample, err error) {
				err = l.serve(ctx, large, service, func(sys system) (err error) { got, err = measureTable(ctx, l, sys, filled); return err })
				return got, err
			}},
			{name: "empty", measure: func() (got sample, err error) {
				anything := time.Now().Add(time.Hour)
				err = l.phase(ctx, service, func(sys system) (err error) { got, err = measureTable(ctx, l, sys, anything); return err })
				return got, err
			}}}, largeAccepted, largeSustained, largeRead)
		return err
	})
}

// measureTable leaves no job to be done. It reads jobs that were created before the given moment.
func measureTable(ctx context.Context, l *lab, sys system, before time.Time) (sample, error) {
	got := sample{}
	err := sys.withWorker(ctx, func(worker *stack.Process) (err error) {
		got[largeSustained], _, err = l.sustained(ctx, sys, worker)
		return err
	})
	if err != nil {
		return got, err
	}
	began := time.Now()
	accepted, err := closed{clients: clients, during: l.duration}.submit(ctx, sys.target)
	if err != nil {
		return got, err
	}
	got[largeAccepted] = accepted.rate()
	stack.Sleep(ctx, quiet)
	if got[largeRead], err = readJobs(ctx, l, sys, before); err != nil {
		return got, err
	}
	return got, sys.withWorker(ctx, func(*stack.Process) error { return sys.db.allFinished(ctx, began, accepted.accepted) })
}

// readJobs reads random jobs of the client that were created before the given moment.
func readJobs(ctx context.Context, l *lab, sys system, before time.Time) (p99 float64, err error) {
	rows, err := sys.db.conn.Query(ctx, `SELECT job_id FROM jobs WHERE client_id = (
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
	client := newHTTPClient(readClients)
	defer client.CloseIdleConnections()
	latency, err := paced(ctx, readRate, l.duration, func(i int) error {
		return newRead(client, sys.url+"/"+ids[i%len(ids)].String(), sys.key).send()
	})
	return quantile(latency, 99), err
}

// fill lets the service finish one job and copies its rows.
func fill(ctx context.Context, l *lab, sys system) error {
	began := time.Now()
	if _, err := (closed{clients: 1, jobs: 1}).submit(ctx, sys.target); err != nil {
		return err
	}
	if err := sys.withWorker(ctx, func(*stack.Process) error { return sys.db.allFinished(ctx, began, 1) }); err != nil {
		return err
	}
	var id uuid.UUID
	if err := sys.db.conn.QueryRow(ctx, "SELECT job_id FROM jobs").Scan(&id); err != nil {
		return err
	}
	fmt.Printf("  filling the tables with %d finished jobs\n", l.rows)
	return copyJobs(ctx, sys.db.conn, id, l.rows)
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
