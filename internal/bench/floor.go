package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	endpointCommand = "endpoint" // hidden: serves the empty endpoint at an address
	groupSize       = 64         // jobs of one statement
	sqlWriters      = 8          // connections
)

// floorExperiment compares the service with the least that the same work takes: the rows of its jobs as bare SQL, and an endpoint
// that only answers 202. River and asynq run beside them.
func floorExperiment(ctx context.Context, l *lab) ([]figure, error) {
	peers, err := l.peers(ctx, "insert", "sustained")
	if err != nil {
		return nil, err
	}
	sides := l.programs(ctx, func(ctx context.Context, l *lab, s service) (sample, error) { return measurePeerJobs(ctx, l, s, false) })
	sides = append(sides,
		side{name: "bare SQL in groups of 64", measure: func() (sample, error) { return l.measureSQL(ctx) }},
		side{name: "empty endpoint", measure: func() (sample, error) { return l.measureEndpoint(ctx) }})
	return inTurns(l.rounds, append(sides, peers...), acceptedFigure, sustainedFigure, cpuFigure)
}

// measureSQL writes the rows of jobs without the service.
func (l *lab) measureSQL(ctx context.Context) (sample, error) {
	got := sample{}
	return got, l.withDatabase(ctx, func(d *database) error {
		// The api process migrates the schema, and ends before the measurement.
		if err := l.serve(ctx, d, l.services[0], func(system) error { return nil }); err != nil {
			return err
		}
		took, err := lives(ctx, d.url, "insert")
		if err != nil {
			return err
		}
		got[acceptedFigure] = peerJobs / took
		cpu := ownCPU() + l.serversCPU()
		took, err = lives(ctx, d.url, "insert", "claim", "start", "finish")
		got[sustainedFigure], got[cpuFigure] = peerJobs/took, (ownCPU()+l.serversCPU()-cpu)/(peerJobs/1000)
		return err
	})
}

//go:embed floor.sql
var floorSQL string

// floorStatement returns a statement of floor.sql.
func floorStatement(name string) string {
	_, rest, _ := strings.Cut(floorSQL, "-- name: "+name+"\n")
	sql, _, _ := strings.Cut(rest, "\n-- name: ")
	return sql
}

// lives takes groups of new jobs through steps and returns the seconds that all took.
func lives(ctx context.Context, url string, steps ...string) (seconds float64, err error) {
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

// measureEndpoint submits the service's jobs to an endpoint in its own process that reads nothing and answers 202.
func (l *lab) measureEndpoint(ctx context.Context) (sample, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	address, err := stack.FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := stack.StartProcess(stack.Command{
		Path: self, Args: []string{endpointCommand, address}, DeathSignal: syscall.SIGKILL, Log: filepath.Join(l.dir, "endpoint.log"),
	})
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	starting, cancel := context.WithTimeoutCause(ctx, readyWithin, errors.New("the empty endpoint is not ready"))
	defer cancel()
	err = p.Await(starting, func(ctx context.Context) bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return err == nil && conn.Close() == nil
	})
	if err != nil {
		return nil, err
	}
	rate, err := submitOneByOne(ctx, system{target: target{url: "http://" + address + "/v1/jobs"}})
	return sample{acceptedFigure: rate}, err
}

func serveEmpty(address string) error {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/v1/jobs", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusAccepted) })
	return app.Listen(address)
}
