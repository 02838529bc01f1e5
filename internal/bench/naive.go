package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
)

// The yardstick: the same rows in the same tables behind the same kind of
// HTTP server and queue, written the usual way, with one transaction for each
// step. It exists in this folder only.

const naiveKey = "frk_naivenaive00_yardstick"

var catalogue = job.Catalogue{Kinds: job.Kinds(), MaxRuntime: 2 * time.Minute}

type naive struct {
	pool  *pgxpool.Pool
	queue *asynq.Client
	work  *work.Runner
}

func runNaive(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("naive", flag.ExitOnError)
	database := flags.String("database", "", "")
	redis := flags.String("redis", "", "")
	slots := flags.Int("slots", 1, "")
	_ = flags.Parse(args) // it exits by itself
	pool, err := pgxpool.New(ctx, *database)
	if err != nil {
		return err
	}
	defer pool.Close()
	address, err := asynq.ParseRedisURI(*redis)
	if err != nil {
		return err
	}
	n := naive{pool: pool, work: work.New(work.Config{Limit: time.Second})}
	if flags.Arg(0) == "worker" {
		return n.serveTasks(ctx, address, *slots)
	}
	n.queue = asynq.NewClient(address)
	return n.serveHTTP(ctx)
}

func (n naive) serveHTTP(ctx context.Context) error {
	client := uuid.New()
	hash := sha256.Sum256([]byte(naiveKey))
	if _, err := n.pool.Exec(ctx, `INSERT INTO clients (client_id) VALUES ($1)`, client); err != nil {
		return err
	}
	if _, err := n.pool.Exec(ctx, `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at)
		VALUES ('naivenaive00', $1, $2, now(), now() + interval '1 day')`, client, hash[:]); err != nil {
		return err
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Post("/v1/jobs", n.submit)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf(`{"msg":"api listening","address":"%s"}`+"\n", l.Addr())
	context.AfterFunc(ctx, func() { _ = app.Shutdown() })
	return app.Listener(l)
}

func (n naive) submit(c *fiber.Ctx) error {
	ctx := c.Context()
	token := strings.TrimPrefix(c.Get("Authorization"), "Bearer ")
	var client uuid.UUID
	err := n.pool.QueryRow(ctx, `SELECT client_id FROM api_keys WHERE key_id = $1 AND expires_at > now() AND revoked_at IS NULL`,
		strings.Split(token, "_")[1]).Scan(&client)
	if err != nil {
		return fiber.ErrUnauthorized
	}
	var request struct {
		Type     job.Type `json:"type"`
		WorkKind job.Kind `json:"work_kind"`
	}
	if err := json.Unmarshal(c.Body(), &request); err != nil {
		return fiber.ErrBadRequest
	}
	id, now := uuid.Must(uuid.NewV7()), time.Now()
	definition, err := catalogue.Define(request.Type, request.WorkKind, now, nil)
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, max_attempts, auto_retry, event_seq,
				created_at, updated_at, run_at, queued_at, language, request_id)
			VALUES ($1, $2, $3, $4, $5, 'QUEUED', 4, false, 2, $6, $6, $6, $6, 'en', '')`,
			id, client, request.Type, request.WorkKind, definition, now); err != nil {
			return err
		}
		if err := addEvent(ctx, tx, id, 1, "job.created", nil, "CREATED", definition); err != nil {
			return err
		}
		return addEvent(ctx, tx, id, 2, "job.queued", "CREATED", "QUEUED", definition)
	})
	if err != nil {
		return err
	}
	if _, err := n.queue.Enqueue(asynq.NewTask("job", id[:]), asynq.Queue("jobs")); err != nil {
		return err
	}
	return c.Status(fiber.StatusAccepted).JSON(fiber.Map{"job_id": id, "state": "QUEUED", "created_at": now})
}

func addEvent(ctx context.Context, tx pgx.Tx, id uuid.UUID, seq int, name string, prev any, next string, d job.Definition) error {
	_, err := tx.Exec(ctx, `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
		SELECT $1, client_id, $2, $3, $4, $5, $6, 1, clock_timestamp(), $7 FROM jobs WHERE job_id = $1`, id, seq, uuid.Must(uuid.NewV7()), name, prev, next,
		map[string]any{"work_kind": d.WorkKind, "duration_ms": d.DurationMS, "expected_outcome": d.ExpectedOutcome})
	return err
}

func (n naive) serveTasks(ctx context.Context, redis asynq.RedisConnOpt, slots int) error {
	worker := uuid.Must(uuid.NewV7())
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: slots, Queues: map[string]int{"jobs": 1}, TaskCheckInterval: 5 * time.Millisecond, LogLevel: asynq.ErrorLevel,
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		return n.handle(context.WithoutCancel(ctx), uuid.UUID(t.Payload()), worker)
	}))
	if err != nil {
		return err
	}
	fmt.Println(`{"msg":"worker ready"}`)
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// handle is the usual way: lock the row, change it, note the event, commit;
// three times.
func (n naive) handle(ctx context.Context, id, worker uuid.UUID) error {
	var definition job.Definition
	err := n.step(ctx, id, "QUEUED", &definition, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE jobs SET state = 'ASSIGNED', worker_id = $2, fence = fence + 1, assigned_at = clock_timestamp(),
			updated_at = clock_timestamp(), event_seq = 3 WHERE job_id = $1`, id, worker)
		return errors.Join(err, addEvent(ctx, tx, id, 3, "job.assigned", "QUEUED", "ASSIGNED", definition))
	})
	if err != nil {
		return err
	}
	err = n.step(ctx, id, "ASSIGNED", nil, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE jobs SET state = 'RUNNING', started_at = clock_timestamp(), updated_at = clock_timestamp(), event_seq = 4
			WHERE job_id = $1`, id)
		return errors.Join(err, addEvent(ctx, tx, id, 4, "job.running", "ASSIGNED", "RUNNING", definition))
	})
	if err != nil {
		return err
	}
	result, err := n.work.Run(ctx, definition, 1, nil)
	if err != nil {
		return err
	}
	return n.step(ctx, id, "RUNNING", nil, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE jobs SET state = 'SUCCEEDED', outcome = 'SUCCESS', worker_id = NULL, finished_at = clock_timestamp(),
			updated_at = clock_timestamp(), event_seq = 5 WHERE job_id = $1`, id); err != nil {
			return err
		}
		if err := addEvent(ctx, tx, id, 5, "job.succeeded", "RUNNING", "SUCCEEDED", definition); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
			SELECT job_id, attempt, 'SUCCESS', started_at, finished_at, (extract(epoch FROM finished_at - started_at) * 1000)::bigint, 5
			FROM jobs WHERE job_id = $1`, id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
			VALUES ($1, 1, $2, $3, $4, now() + interval '1 day', $5)`, id, result.MediaType, len(result.Body), result.SHA256[:], result.Body)
		return err
	})
}

// step is one transaction on a job that must be in the given state.
func (n naive) step(ctx context.Context, id uuid.UUID, state string, definition *job.Definition, change func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		var found job.Definition
		var now string
		if err := tx.QueryRow(ctx, `SELECT state, definition FROM jobs WHERE job_id = $1 FOR UPDATE`, id).Scan(&now, &found); err != nil {
			return err
		}
		if now != state {
			return fmt.Errorf("job is %s, not %s", now, state)
		}
		if definition != nil {
			*definition = found
		}
		return change(tx)
	})
}
