// Package stack runs ForgeRun on this machine: private Postgres and Redis servers, the service's processes, and faults. "forgerun
// dev", the simulator, the benchmark and tests use it.
//
// StartPostgres, StartRedis and Temp run only servers. StartProcess runs any program. Start runs a whole service: the servers, and the api,
// deliverer and worker processes. It restarts processes that end unexpectedly. Chaos injects faults into the service.
//
// Every server
//
//   - listens on 127.0.0.1 only, on a free port that it keeps over restarts.
//   - locks its folder while it runs.
//   - ends with this process on Linux: the kernel signals it when this process dies. Elsewhere the next start in the same folder
//     stops it.
//   - never runs as root. If this process runs as root, the server runs as another user; see ServerOptions.Dir.
//   - logs to a file in its folder.
//
// The context of a Start function limits the start only, not the lifetime of the started server or process.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/client"
)

// Stack is a running service. It is safe for concurrent use.
type Stack struct {
	URL                   string // address of the API, which never changes; "" with external servers
	DatabaseURL, RedisURL string // addresses of the servers, not of proxies

	o       Options
	log     *slog.Logger
	env     environ        // does not change after the start of the first process
	clock   *client.Client // moves the clock; nil without Options.Clock
	servers *Servers       // nil: external servers

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	// serverFault is acquired for each fault and each start of Postgres or Redis. So a fault affects only one of the two servers at a time.
	serverFault *semaphore.Weighted
	next        atomic.Uint64 // counts connections, to use the api processes in turn
	close       func() error

	mu                        sync.Mutex
	closed                    bool
	apis, deliverers, workers []*member
	proxies                   []*proxy
	scaling                   Scaling
}

// Scaling describes the processes that Scale stopped.
type Scaling struct {
	Stopped int
	Slowest time.Duration // longest time from SIGTERM to the end of one of the processes
}

var errClosed = errors.New("the stack is closed")

// Start starts the stack and returns once all processes are ready. After an error, no process is left running.
func Start(ctx context.Context, o Options) (*Stack, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Stack{o: o, log: slog.New(slog.NewTextHandler(o.Log, nil)), serverFault: semaphore.NewWeighted(1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.end)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) start(ctx context.Context) error {
	if err := os.MkdirAll(s.Logs(), 0o755); err != nil {
		return err
	}
	if s.o.foreign() {
		s.env, s.DatabaseURL, s.RedisURL = newEnviron(s.o, s.o.DatabaseURL, s.o.RedisURL), s.o.DatabaseURL, s.o.RedisURL
	} else {
		if err := s.prepare(ctx); err != nil {
			return err
		}
		s.resize(&s.apis, "api", s.o.APIs)
		s.resize(&s.deliverers, "deliverer", 1)
	}
	s.resize(&s.workers, "worker", s.o.Workers)
	err := awaitReady(ctx, s.members())
	if err == nil && s.o.Clock && !s.o.foreign() {
		s.clock, err = newClock(ctx, s.URL)
	}
	return err
}

// prepare starts the servers and their proxies, and migrates the database. The servers force writes to disk, as in production.
func (s *Stack) prepare(ctx context.Context) (err error) {
	options := func(name string, settings map[string]string) *ServerOptions {
		return &ServerOptions{Settings: settings, Logger: s.log, log: s.logOf(name)}
	}
	s.servers, err = Temp(ctx, options("postgres", map[string]string{"max_connections": "1000"}), options("redis", nil))
	if err != nil {
		return err
	}
	s.DatabaseURL, s.RedisURL = s.servers.Postgres.URL(), s.servers.Redis.URL()
	for _, server := range []*server{s.servers.Postgres.server, s.servers.Redis.server} {
		server.gate, server.ctx = s.serverFault, s.ctx
		s.running.Go(server.keep)
	}
	migrate := s.command("migrate", environ{"FORGERUN_DATABASE_URL": s.DatabaseURL})
	migrate.Args = []string{"migrate"}
	if err := RunProcess(ctx, migrate); err != nil {
		return fmt.Errorf("forgerun migrate: %w", err)
	}
	database, databaseErr := s.throughProxy("postgres", s.DatabaseURL)
	redis, redisErr := s.throughProxy("redis", s.RedisURL)
	s.env = newEnviron(s.o, database, redis)
	return errors.Join(databaseErr, redisErr, s.chooseURL())
}

func (s *Stack) chooseURL() (err error) {
	var address string
	if s.o.Faults {
		address, err = s.addProxy("api", cmp.Or(s.o.Listen, anyAddress), s.dialAPI)
	} else {
		address, err = FreeAddress()
	}
	s.URL = "http://" + address
	if s.o.Env["FORGERUN_PUBLIC_URL"] == "" {
		s.env["FORGERUN_PUBLIC_URL"] = s.URL
	}
	return err
}

func (s *Stack) command(name string, env environ) Command {
	return Command{Path: s.o.Forgerun, Env: env.list(), DeathSignal: syscall.SIGKILL, Log: s.logOf(name)}
}

// Logs returns the folder with the logs of all processes. Close keeps it.
func (s *Stack) Logs() string { return filepath.Join(s.o.Dir, "logs") }

func (s *Stack) logOf(name string) string { return filepath.Join(s.Logs(), name+".log") }

// MetricsURLs returns the metrics addresses of all processes that are ready.
func (s *Stack) MetricsURLs() []string {
	var urls []string
	for _, m := range s.members() {
		if m.living() != nil {
			urls = append(urls, "http://"+m.admin+"/metrics")
		}
	}
	return urls
}

func (s *Stack) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.apis, s.deliverers, s.workers)
}

// Processes returns how many processes the service should have, even if some are down.
func (s *Stack) Processes() int { return len(s.members()) }

// Workers returns how many worker processes the service should have, even if some are down.
func (s *Stack) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Scale starts or stops worker processes until there are n. It returns when the new processes are ready, or when the surplus processes have
// ended after SIGTERM. If the context ends first, Scale returns an error, but the processes still start or stop. Only one goroutine may
// call Scale at a time. It may be called during faults.
func (s *Stack) Scale(ctx context.Context, n int) error {
	if n < 0 || n > maxWorkers {
		return fmt.Errorf("%d workers: the number must be from 0 to %d", n, maxWorkers)
	}
	ctx, done, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	wanted, dropped := s.resize(&s.workers, "worker", n)
	return errors.Join(s.stopMembers(ctx, dropped), awaitReady(ctx, wanted))
}

// Scaling describes the processes that all calls of Scale have stopped so far.
func (s *Stack) Scaling() Scaling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaling
}

// call registers a method call, so that Close waits for its end. The method must call the returned function at its end. The returned
// context also ends when the stack is closed.
func (s *Stack) call(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
		s.running.Done()
	}, nil
}

// Restart stops all processes of the service, but not the servers. It starts the processes again at the time `until`, and returns when all
// are ready. `down` is the time when all processes were stopped, and `up` is the time when they were started again.
func (s *Stack) Restart(ctx context.Context, until time.Time) (down, up time.Time, err error) {
	ctx, done, err := s.call(ctx)
	if err != nil {
		return down, up, err
	}
	defer done()
	members := s.members()
	var stops errgroup.Group
	for _, m := range members {
		stops.Go(func() error { return m.down(s.env.stopPatience()) })
	}
	err = stops.Wait()
	down = time.Now()
	Sleep(ctx, time.Until(until))
	up = time.Now()
	for _, m := range members {
		m.gate.Release(1)
	}
	return down, up, errors.Join(err, awaitReady(ctx, members))
}

// Heal waits until every process is ready, and then sets the clock to the normal rate. Call it after all faults have ended.
func (s *Stack) Heal(ctx context.Context) error {
	ctx, done, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	if s.servers != nil {
		if err := errors.Join(s.servers.Postgres.awaitReady(ctx), s.servers.Redis.awaitReady(ctx)); err != nil {
			return err
		}
	}
	err = awaitReady(ctx, s.members())
	if err == nil && s.clock != nil {
		err = s.move(ctx, atRate(1, 0))
	}
	return err
}

// Close ends everything, including active calls, and removes the servers' data. Only logs remain. Close returns an error if a process had
// to be killed. Further calls return the same result.
func (s *Stack) Close() error { return s.close() }

func (s *Stack) end() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel() // also ends the processes
	s.running.Wait()
	var errs []error
	for _, m := range s.members() {
		errs = append(errs, m.err)
	}
	for _, p := range s.proxies {
		p.close()
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	return errors.Join(errs...)
}
