package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/repo"
)

// stack is the temporary servers and the programs under test.
type stack struct {
	servers  *devstack.Stack
	dir      string
	forgerun string // path of the binary
	redisDB  int    // a fresh one for each system
}

// newStack builds the program and starts the servers. Postgres has what the
// settings say on top.
func newStack(ctx context.Context, settings map[string]string) (*stack, error) {
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return nil, err
	}
	s := &stack{dir: dir, forgerun: filepath.Join(dir, "forgerun")}
	fmt.Println("building, starting Postgres and Redis (fsync, synchronous_commit and AOF on)")
	if err := build(ctx, s.forgerun); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	postgres := map[string]string{"max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB"}
	maps.Copy(postgres, settings)
	s.servers, err = devstack.Temp(ctx, devstack.TempOptions{Postgres: postgres, Redis: map[string]string{"databases": "1024"}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

// build builds the service.
func build(ctx context.Context, path string, flags ...string) error {
	args := append(append([]string{"build", "-o", path}, flags...), "github.com/forgerun/forgerun/cmd/forgerun")
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}

// buildUncounted builds the service with internal/bench/uncounted/telemetry in the
// place of its own metrics.
func buildUncounted(ctx context.Context, dir string) (path string, err error) {
	found, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/forgerun/forgerun/internal/telemetry").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	counted := strings.TrimSpace(string(found))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(counted, "metrics.go"): filepath.Join(counted, "..", "bench", "uncounted", "telemetry", "metrics.go"),
	}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "forgerun-uncounted")
	return path, build(ctx, path, "-overlay", list)
}

func (s *stack) close() error {
	err := s.servers.Close()
	if removed := os.RemoveAll(s.dir); err == nil {
		err = removed
	}
	return err
}

// database is a fresh, migrated database and an empty Redis database.
type database struct {
	url, redis string
	conn       *pgx.Conn
}

func (s *stack) newDatabase(ctx context.Context) (*database, error) {
	name := "bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	admin, err := pgx.Connect(ctx, s.servers.Postgres.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	s.redisDB++
	d := &database{
		url:   strings.Replace(s.servers.Postgres.URL(), "/forgerun?", "/"+name+"?", 1),
		redis: regexp.MustCompile(`/\d+$`).ReplaceAllString(s.servers.Redis.URL(), fmt.Sprintf("/%d", s.redisDB)),
	}
	if err := repo.Migrate(ctx, d.url, -1); err != nil {
		return nil, err
	}
	d.conn, err = pgx.Connect(ctx, d.url)
	return d, err
}

// drop removes a database, so that the servers have nothing left to do for it, and
// flushes what its system left in Redis.
func (s *stack) drop(ctx context.Context, d *database) error {
	name := d.conn.Config().Database
	closed := d.conn.Close(ctx)
	admin, err := pgx.Connect(ctx, s.servers.Postgres.URL())
	if err != nil {
		return errors.Join(closed, err)
	}
	defer func() { _ = admin.Close(ctx) }()
	_, err = admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	client, failure := redisClient(d.redis)
	if failure != nil {
		return errors.Join(closed, err, failure)
	}
	defer func() { _ = client.Close() }()
	return errors.Join(closed, err, client.FlushDB(ctx).Err())
}

func redisClient(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// system is what is measured: an API, and a worker that can be started later.
type system struct {
	base        string // of the API
	url, key    string // where jobs are submitted
	env         []string
	api         *program
	startWorker func() (*program, error)
}

// program is a child process. The beginning of its log is kept; reading the rest
// must cost next to nothing, since it would be taken for the program's own cost.
type program struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	head bytes.Buffer

	stopping chan struct{} // closed when it is told to end
}

func launch(path string, env []string, args ...string) (*program, error) {
	p := &program{cmd: exec.Command(path, args...), stopping: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p
	p.cmd.Stdout = p
	return p, p.cmd.Start()
}

// Write takes the program's log.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head.Len() < 64<<10 {
		p.head.Write(b)
	}
	return len(b), nil
}

// readyWithin bounds the start of a program.
const readyWithin = 20 * time.Second

// until waits for the program to be ready.
func (p *program) until(ready func() bool) error {
	for limit := time.Now().Add(readyWithin); !ready(); time.Sleep(20 * time.Millisecond) {
		if p.said("address already in use") {
			return errAddressTaken
		}
		if time.Now().After(limit) {
			return p.late()
		}
	}
	return nil
}

var errAddressTaken = errors.New("somebody else listens on the address meanwhile")

func (p *program) said(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.head.Bytes(), []byte(words))
}

func (p *program) late() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s did not get ready; its log:\n%s", p.cmd.Path, p.head.String())
}

// await waits for a line of the log and gives the first group of the pattern.
func (p *program) await(pattern string) (string, error) {
	expression := regexp.MustCompile(pattern)
	var found []string
	err := p.until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		found = expression.FindStringSubmatch(p.head.String())
		return found != nil
	})
	if err != nil {
		return "", err
	}
	return found[len(found)-1], nil
}

// pid is 0 for no program.
func (p *program) pid() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *program) stop() error {
	if p == nil {
		return nil
	}
	close(p.stopping)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// listening is what the naive system logs.
const listening = `"api listening".*"address":"([^"]+)"`

// startForgeRun starts the service on a free address, and on another one if
// somebody was quicker. It logs its address, but not in every mode.
func (s *stack) startForgeRun(ctx context.Context, d *database, o options) (sys system, err error) {
	for range 5 {
		if sys, err = s.tryForgeRun(ctx, d, o); !errors.Is(err, errAddressTaken) {
			break
		}
		_ = sys.api.stop() // it has ended by itself
		sys.api = nil
	}
	return sys, err
}

func (s *stack) tryForgeRun(ctx context.Context, d *database, o options) (system, error) {
	address, err := freeAddress()
	if err != nil {
		return system{}, err
	}
	env := append([]string{
		"FORGERUN_DATABASE_URL=" + d.url + "&pool_max_conns=24", "FORGERUN_REDIS_URL=" + d.redis,
		"FORGERUN_HTTP_ADDR=" + address, "FORGERUN_ADMIN_ADDR=127.0.0.1:0", "FORGERUN_OPEN_REGISTRATION=true",
		"FORGERUN_RATE_LIMIT_PER_MINUTE=1000000000", "FORGERUN_TIME_SCALE=0", fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", o.slots),
		"FORGERUN_MASTER_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true", "FORGERUN_PUBLIC_URL=http://127.0.0.1",
	}, o.env...)
	api, err := launch(cmp.Or(o.program, s.forgerun), env, "api")
	if err != nil {
		return system{}, err
	}
	sys := system{base: "http://" + address, url: "http://" + address + "/v1/jobs", env: env, api: api}
	sys.startWorker = func() (*program, error) {
		const alive = "SELECT count(*) FROM workers WHERE state = 'ALIVE'"
		var before, now int
		if err := d.conn.QueryRow(ctx, alive).Scan(&before); err != nil {
			return nil, err
		}
		w, err := launch(cmp.Or(o.program, s.forgerun), env, "worker")
		if err != nil {
			return nil, err
		}
		return w, w.until(func() bool { return d.conn.QueryRow(ctx, alive).Scan(&now) == nil && now > before })
	}
	err = api.until(func() bool {
		sys.key, err = register(ctx, sys.base)
		return err == nil
	})
	return sys, err
}

// freeAddress gives one that nobody listens on at the moment.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

func (s *stack) startNaive(_ context.Context, d *database, o options) (system, error) {
	self, err := os.Executable()
	if err != nil {
		return system{}, err
	}
	args := []string{"naive", "-database", d.url + "&pool_max_conns=24", "-redis", d.redis, "-slots", fmt.Sprint(o.slots)}
	api, err := launch(self, nil, append(args, "api")...)
	if err != nil {
		return system{}, err
	}
	address, err := api.await(listening)
	return system{url: "http://" + address + "/v1/jobs", key: naiveKey, api: api, startWorker: func() (*program, error) {
		w, err := launch(self, nil, append(args, "worker")...)
		if err == nil {
			_, err = w.await(`("worker ready")`)
		}
		return w, err
	}}, err
}

// register makes a client and its key.
func register(ctx context.Context, base string) (key string, err error) {
	first, err := post(ctx, base+"/v1/clients")
	if err != nil {
		return "", err
	}
	id := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(first)
	second, err := post(ctx, base+"/v1/clients/"+id+"/keys")
	return regexp.MustCompile(`frk_\w+`).FindString(second), err
}

func post(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusCreated {
		return "", fmt.Errorf("%s answers %s: %s", url, response.Status, body)
	}
	return string(body), err
}
