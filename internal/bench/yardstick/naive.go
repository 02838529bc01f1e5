// Package yardstick has what the service is compared with: the same rows in the same
// tables behind the same kind of HTTP server and queue, written with one transaction
// for each step of each job (naive), and pgbench with the rows of a submission alone.
package yardstick

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
)

const naiveKey = "frk_naivenaive00_yardstick"

type naive struct {
	pool  *pgxpool.Pool
	queue *asynq.Client
	work  *work.Runner
}

// RunNaive is a process of the naive system: "api" or "worker".
func RunNaive(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return errors.New("naive api|worker DATABASE REDIS SLOTS")
	}
	slots, badSlots := strconv.Atoi(args[3])
	address, badRedis := asynq.ParseRedisURI(args[2])
	pool, badDatabase := pgxpool.New(ctx, args[1])
	if err := cmp.Or(badSlots, badRedis, badDatabase); err != nil {
		return err
	}
	defer pool.Close()
	n := naive{pool: pool, work: work.New(work.Config{Limit: time.Second})}
	if args[0] == "worker" {
		return n.serveTasks(ctx, address, slots)
	}
	n.queue = asynq.NewClient(address)
	return n.serveHTTP(ctx)
}

func (n naive) serveHTTP(ctx context.Context) error {
	client := uuid.New()
	hash := sha256.Sum256([]byte(naiveKey))
	if _, err := n.pool.Exec(ctx, `WITH client AS (INSERT INTO clients (client_id) VALUES ($1))
		INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at)
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
	_, key, _ := strings.Cut(c.Get("Authorization"), "_")
	key, _, _ = strings.Cut(key, "_")
	var client uuid.UUID
	if n.pool.QueryRow(ctx, `SELECT client_id FROM api_keys WHERE key_id = $1 AND expires_at > now() AND revoked_at IS NULL`,
		key).Scan(&client) != nil {
		return fiber.ErrUnauthorized
	}
	var request struct {
		Type     job.Type `json:"type"`
		WorkKind job.Kind `json:"work_kind"`
	}
	if json.Unmarshal(c.Body(), &request) != nil {
		return fiber.ErrBadRequest
	}
	id, now := uuid.Must(uuid.NewV7()), time.Now()
	definition, err := lab.Catalogue.Define(request.Type, request.WorkKind, now, nil)
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
		if err := addEvent(ctx, tx, id, 1, nil, "CREATED", definition); err != nil {
			return err
		}
		return addEvent(ctx, tx, id, 2, "CREATED", "QUEUED", definition)
	})
	if err != nil {
		return err
	}
	if _, err := n.queue.Enqueue(asynq.NewTask("job", id[:]), asynq.Queue("jobs")); err != nil {
		return err
	}
	return c.Status(fiber.StatusAccepted).JSON(fiber.Map{"job_id": id, "state": "QUEUED", "created_at": now})
}

func addEvent(ctx context.Context, tx pgx.Tx, id uuid.UUID, seq int, from any, to string, d job.Definition) error {
	_, err := tx.Exec(ctx, `INSERT INTO events
			(job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
		SELECT $1, client_id, $2, $3, $4, $5, $6, 1, clock_timestamp(), $7 FROM jobs WHERE job_id = $1`,
		id, seq, uuid.Must(uuid.NewV7()), "job."+strings.ToLower(to), from, to,
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

// handle takes a job through its states with one transaction for each.
func (n naive) handle(ctx context.Context, id, worker uuid.UUID) error {
	const assign = `worker_id = $2, fence = fence + 1, assigned_at = clock_timestamp()`
	definition, err := n.step(ctx, id, 3, "QUEUED", "ASSIGNED", assign, nil, worker)
	if err != nil {
		return err
	}
	if _, err = n.step(ctx, id, 4, "ASSIGNED", "RUNNING", `started_at = clock_timestamp()`, nil); err != nil {
		return err
	}
	result, err := n.work.Run(ctx, definition, 1, job.Observer{})
	if err != nil {
		return err
	}
	const end = `outcome = 'SUCCESS', worker_id = NULL, finished_at = clock_timestamp()`
	_, err = n.step(ctx, id, 5, "RUNNING", "SUCCEEDED", end, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
			SELECT job_id, attempt, 'SUCCESS', started_at, finished_at, (extract(epoch FROM finished_at - started_at) * 1000)::bigint, 5
			FROM jobs WHERE job_id = $1`, id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
			VALUES ($1, 1, $2, $3, $4, now() + interval '1 day', $5)`, id, result.MediaType, len(result.Body), result.SHA256[:], result.Body)
		return err
	})
	return err
}

// step is one transaction: lock the job, which must be in state from, change it, add
// the event, and do what else belongs to the step.
func (n naive) step(
	ctx context.Context, id uuid.UUID, seq int, from, to, set string, also func(pgx.Tx) error, args ...any,
) (definition job.Definition, err error) {
	err = pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		var state string
		if err := tx.QueryRow(ctx, `SELECT state, definition FROM jobs WHERE job_id = $1 FOR UPDATE`, id).Scan(&state, &definition); err != nil {
			return err
		}
		if state != from {
			return fmt.Errorf("job is %s, not %s", state, from)
		}
		update := fmt.Sprintf(`UPDATE jobs SET state = '%s', %s, updated_at = clock_timestamp(), event_seq = %d WHERE job_id = $1`, to, set, seq)
		if _, err := tx.Exec(ctx, update, append([]any{id}, args...)...); err != nil {
			return err
		}
		if err := addEvent(ctx, tx, id, seq, from, to, definition); err != nil || also == nil {
			return err
		}
		return also(tx)
	})
	return definition, err
}

// StartNaive starts the naive system, processes of this program in another role.
func StartNaive(ctx context.Context, d *lab.Database, o lab.Options) (sys lab.System, err error) {
	self, err := os.Executable()
	if err != nil {
		return sys, err
	}
	launch := func(role, ready string) (p *lab.Program, found string, err error) {
		p, err = lab.Launch(self, nil, "naive", role, d.URL+"&pool_max_conns=24", d.RedisURL, strconv.Itoa(o.Slots))
		if err == nil {
			found, err = p.Logged(ctx, ready)
		}
		return p, found, err
	}
	sys.StartWorker = func() (*lab.Program, error) {
		w, _, err := launch("worker", `("worker ready")`)
		return w, err
	}
	var address string
	sys.API, address, err = launch("api", `"api listening".*"address":"([^"]+)"`)
	sys.Target = loadgen.Target{URL: "http://" + address + "/v1/jobs", Key: naiveKey}
	return sys, err
}
