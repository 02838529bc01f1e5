package main

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	groupSize  = 64 // jobs per statement
	sqlWriters = 8  // connections
)

// floor compares the service with two minimal programs: bare SQL that writes the same rows, and an endpoint that only returns 202. It also
// compares the service with River and asynq.
func floor(l *lab) {
	program := l.build("internal/bench/peers", ".")
	l.compare(append(l.programs(func(s service, got sample) { got.peerJobs(l, s) }),
		side{name: "bare SQL in groups of 64", measure: func(got sample) { got.bareSQL(l) }},
		side{name: "empty endpoint", measure: func(got sample) { got.emptyEndpoint(l) }},
		side{name: "River", measure: func(got sample) { got.peer(l, program, "river", "insert drain", "batch", "sustained") }},
		side{name: "asynq", measure: func(got sample) { got.peer(l, program, "asynq", "insert", "sustained") }},
	), acceptedFigure, sustainedFigure, cpuFigure, batchFigure, drainFigure)
}

func (got sample) bareSQL(l *lab) {
	d := l.database()
	l.serve(d, l.services[0], func(system) {}) // migrates the schema
	got[acceptedFigure] = peerJobs / must(runSteps(l.ctx, d.url, "insert"))
	used := system{lab: l}.while(func() {
		got[sustainedFigure] = peerJobs / must(runSteps(l.ctx, d.url, "insert", "claim", "start", "finish"))
	})
	got[cpuFigure] = used.of("generator", "Postgres", "Redis") / (peerJobs / 1000)
}

//go:embed floor.sql
var floorSQL string

func floorStatement(name string) string {
	_, rest, _ := strings.Cut(floorSQL, "-- name: "+name+"\n")
	sql, _, _ := strings.Cut(rest, "\n-- name: ")
	return sql
}

// runSteps runs the named statements of floor.sql on groups of new jobs.
func runSteps(ctx context.Context, url string, steps ...string) (seconds float64, err error) {
	const definition = `{"work_kind": "PAYLOAD_SMALL", "duration_ms": 0, "expected_outcome": "SUCCESS"}`
	params := `{"text":"` + strings.Repeat("x", 150) + `"}`
	group, ctx := errgroup.WithContext(ctx)
	var begun atomic.Int64
	began := time.Now()
	for range sqlWriters {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			_, err = conn.Exec(ctx, "SET session_replication_role = replica") // no triggers
			for err == nil && begun.Add(groupSize) <= peerJobs {
				ids := make([]uuid.UUID, groupSize)
				for i := range ids {
					ids[i] = uuid.Must(uuid.NewV7())
				}
				for _, step := range steps {
					if err == nil {
						err = execStep(ctx, conn, step, ids, definition, params)
					}
				}
			}
			return err
		})
	}
	err = group.Wait()
	return time.Since(began).Seconds(), err
}

func execStep(ctx context.Context, conn *pgx.Conn, step string, ids []uuid.UUID, definition, params string) error {
	args := []any{ids, uuid.Max, definition, params}
	if step != "insert" {
		args = args[:3]
	}
	if _, err := conn.Exec(ctx, floorStatement(step), args...); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

func (got sample) emptyEndpoint(l *lab) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/v1/jobs", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusAccepted) })
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = app.Listener(listener) }()
	got[acceptedFigure] = submitPeerJobs(l.ctx, target{url: "http://" + listener.Addr().String() + "/v1/jobs"})
	check(app.Shutdown())
}
