package main

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo/repotest"
)

type env = map[string]string

var masterKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

type stack struct {
	t           *testing.T
	databaseURL string
	db          *pgxpool.Pool
	redis       *local.Redis
	redisDir    string
	rdb         *redis.Client
	env         env
	http        *http.Client
	streams     *http.Client // has no time limit, and opens a connection for each stream

	mu       sync.Mutex
	procs    []*proc
	sent     map[string]bool // X-Request-Id values of all requests
	accepted map[string]bool // ids of jobs that the API accepted with 202
	secrets  []string        // API keys and other values that no log may contain
}

// newStack marks the test as parallel and returns a stack on the shared Postgres server. Jobs end immediately, unless `environment` sets
// FORGERUN_TIME_SCALE.
func newStack(t *testing.T, environment ...env) *stack {
	t.Helper()
	t.Parallel()
	return newStackOn(t, repotest.URL(t), environment...)
}

// newStackWithPostgres is like newStack, but starts a Postgres server for this stack and sets defaultTimeout.
func newStackWithPostgres(t *testing.T, environment ...env) (*stack, *local.Postgres) {
	t.Helper()
	t.Parallel()
	postgres := repotest.Server(t)
	return newStackOn(t, postgres.URL(), defaultTimeout, merge(environment...)), postgres
}

func newService(t *testing.T, environment ...env) (s *stack, api *proc, u *user) {
	t.Helper()
	s = newStack(t, environment...)
	api = s.startLeader()
	return s, api, s.newUser(api)
}

func newWorking(t *testing.T, environment ...env) (s *stack, api *proc, u *user) {
	t.Helper()
	s, api, u = newService(t, environment...)
	s.startWorker()
	return s, api, u
}

func newDelivering(t *testing.T, environment ...env) (s *stack, api *proc, u *user) {
	t.Helper()
	s = newStack(t, hooks, merge(environment...))
	api, _, u = s.startDelivering()
	return s, api, u
}

// newStackOn returns a stack on a database, and does not make the test parallel.
func newStackOn(t *testing.T, databaseURL string, environment ...env) *stack {
	t.Helper()
	documented := documented(t)
	s := &stack{
		t: t, databaseURL: databaseURL, sent: map[string]bool{}, accepted: map[string]bool{}, secrets: []string{masterKey},
		http:    &http.Client{Timeout: patience, Transport: documented.Transport(&http.Transport{MaxIdleConnsPerHost: 256})},
		streams: &http.Client{Transport: documented.Transport(&http.Transport{DisableKeepAlives: true})},
	}
	t.Cleanup(s.http.CloseIdleConnections)
	s.startRedisIn(tempDir(t))
	s.env = merge(env{
		"FORGERUN_DATABASE_URL": databaseURL, "FORGERUN_REDIS_URL": s.redis.URL(),
		"FORGERUN_HTTP_ADDR": "127.0.0.1:0", "FORGERUN_ADMIN_ADDR": "127.0.0.1:0",
		"FORGERUN_OPEN_REGISTRATION": "true", "FORGERUN_RATE_LIMIT_PER_MINUTE": "1000000", "FORGERUN_WEBHOOK_CLIENT_RATE": "0",
		"FORGERUN_MAX_SCHEDULE_AHEAD": "1752000h",
		"FORGERUN_RETRY_BACKOFF_BASE": "10ms", "FORGERUN_RETRY_BACKOFF_MAX": "50ms",
		"FORGERUN_WORKER_CONCURRENCY": "4", "FORGERUN_TIME_SCALE": "0",
		"FORGERUN_DB_TIMEOUT": "60s", // for busy machines
		"FORGERUN_MASTER_KEY": masterKey, "FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true",
	}, merge(environment...))
	s.db = openPool(t, databaseURL)
	t.Cleanup(s.logUnfinished)
	return s
}

func (s *stack) logUnfinished() {
	if !s.t.Failed() {
		return
	}
	rows, _ := s.db.Query(context.Background(), `SELECT row_to_json(jobs)::text FROM jobs WHERE finished_at IS NULL LIMIT 20`)
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.t.Logf("unfinished jobs: %v\n%s", err, strings.Join(jobs, "\n"))
}

func documented(t *testing.T) *apitest.Document {
	t.Helper()
	return apitest.New(t, []byte(readText(t, "../../handlers/docs/openapi.yaml")))
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.ConnConfig.RuntimeParams["statement_timeout"] = strconv.FormatInt(patience.Milliseconds(), 10)
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// tempDir returns a folder that Postgres and Redis may enter as an unprivileged user.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := local.MkdirTemp("", "forgerun-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func (s *stack) startRedisIn(dir string) {
	s.redisDir = filepath.Join(dir, "redis")
	var err error
	s.redis, err = local.StartRedis(s.t.Context(), local.ServerOptions{Dir: s.redisDir})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, s.redis.Kill()) })
	options, err := redis.ParseURL(s.redis.URL())
	require.NoError(s.t, err)
	s.rdb = redis.NewClient(options)
	s.t.Cleanup(func() { _ = s.rdb.Close() })
}

// ctx has no deadline, because statement_timeout limits statements.
func (s *stack) ctx() context.Context { return s.t.Context() }

func (s *stack) start(role string, environment ...env) *proc {
	s.t.Helper()
	all := merge(s.env, merge(environment...))
	if all["FORGERUN_PUBLIC_URL"] == "" && (role == "deliverer" || (role == "worker" && all["FORGERUN_OUTCOME_STREAM"] != "")) {
		all["FORGERUN_PUBLIC_URL"] = "http://forgerun.test"
	}
	p := startProc(s.t, all, s.knownSecrets, role)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return p
}

func (s *stack) startAPI(environment ...env) *proc {
	s.t.Helper()
	p := s.start("api", environment...)
	p.waitAPI()
	return p
}

func (p *proc) waitAPI() {
	p.t.Helper()
	p.url = "http://" + p.logged("api listening")["address"].(string)
}

// startLeader starts an api process and waits until it leads the maintenance. After a kill, this takes until the lease of the killed
// leader ends.
func (s *stack) startLeader(environment ...env) *proc {
	s.t.Helper()
	p := s.startAPI(environment...)
	p.logged("leadership changed", `"leading":true`)
	return p
}

func (s *stack) startWorker(environment ...env) *proc {
	s.t.Helper()
	p := s.start("worker", environment...)
	p.logged("worker registered")
	return p
}

func (p *proc) workerID() string {
	p.t.Helper()
	return p.logged("worker registered")["worker_id"].(string)
}

// defaultTimeout restores the default of FORGERUN_DB_TIMEOUT, for tests in which Postgres hangs.
var defaultTimeout = env{"FORGERUN_DB_TIMEOUT": "5s"}

// quickLease lets the leader detect a dead worker soon.
var quickLease = env{"FORGERUN_LEASE_TIMEOUT": "2s"}

func (s *stack) secret(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, texts...)
}

func (s *stack) knownSecrets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.secrets...)
}

func (s *stack) workerRuns() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.procs {
		if p.cmd.Args[1] == "worker" && p.running() {
			return true
		}
	}
	return false
}

func (s *stack) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Exec(s.ctx(), sql, args...)
	require.NoError(s.t, err)
}

func (s *stack) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.ctx(), sql, args...).Scan(&n))
	return n
}

func (s *stack) text(sql string, args ...any) (text string) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.ctx(), sql, args...).Scan(&text))
	return text
}

func (s *stack) texts(sql string, args ...any) []string {
	s.t.Helper()
	return collect(s, pgx.RowTo[string], sql, args...)
}

// structs returns the rows of the query as structs, with columns mapped to fields in order.
func structs[T any](s *stack, sql string, args ...any) []T {
	s.t.Helper()
	return collect(s, pgx.RowToStructByPos[T], sql, args...)
}

func collect[T any](s *stack, to pgx.RowToFunc[T], sql string, args ...any) []T {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), sql, args...)
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, to)
	require.NoError(s.t, err)
	return all
}

func (s *stack) countJobs(ids []string, state string) int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM jobs WHERE job_id = ANY($1::uuid[]) AND state = $2`, ids, state)
}

func (s *stack) await(state string, ids ...string) {
	s.t.Helper()
	eventually(s.t, "jobs in "+state, func() bool { return s.countJobs(ids, state) == len(ids) })
}

// ended is an SQL condition: the job is final and will not be retried automatically.
const ended = `finished_at IS NOT NULL AND NOT (state = 'FAILED' AND auto_retry AND failure_retryable AND attempt < max_attempts)`

func (s *stack) awaitCount(what string, n int, sql string, args ...any) {
	s.t.Helper()
	eventually(s.t, what, func() bool { return s.count(sql, args...) == n })
}

func (s *stack) awaitFinal(ids ...string) {
	s.t.Helper()
	eventually(s.t, "jobs are final", func() bool {
		return s.count(`SELECT count(*) FROM jobs WHERE job_id = ANY($1::uuid[]) AND `+ended, ids) == len(ids)
	})
}

// gate blocks statements that change a job to a given state. A statement waits until `open` is called or the statement times out.
type gate struct{ open func() }

func (s *stack) closeGate(state string) gate {
	s.t.Helper()
	s.exec(`CREATE OR REPLACE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER gate BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.state = '` + state + `' AND OLD.state <> NEW.state)
		EXECUTE FUNCTION gate()`)
	return gate{s.lock(`SELECT pg_advisory_xact_lock(4711)`)}
}

// atGate reports whether a statement waits at a closed gate.
func (s *stack) atGate() bool {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
}

func (s *stack) lock(sql string) (unlock func()) {
	s.t.Helper()
	tx, err := s.db.Begin(s.ctx())
	require.NoError(s.t, err)
	_, err = tx.Exec(s.ctx(), sql)
	require.NoError(s.t, err)
	once := sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	s.t.Cleanup(once)
	return once
}

func (s *stack) tasks() map[string]string {
	s.t.Helper()
	const prefix = "asynq:{jobs}:t:"
	found := map[string]string{}
	all := s.rdb.Scan(s.ctx(), 0, prefix+"*", 1000).Iterator()
	for all.Next(s.ctx()) {
		state, err := s.rdb.HGet(s.ctx(), all.Val(), "state").Result()
		if err == nil { // asynq returns an error if the task has finished meanwhile
			found[all.Val()[len(prefix):]] = state
		}
	}
	require.NoError(s.t, all.Err())
	return found
}
