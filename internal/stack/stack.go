// Package stack runs ForgeRun on this machine: private Postgres and Redis servers, processes of our programs, and the faults
// that are done to them. "forgerun dev", the simulator, the benchmark and tests use it.
//
// StartPostgres, StartRedis and Temp run servers alone, StartProcess any program. Start runs a whole service: its stores, api,
// deliverer and worker processes. What of it ends unexpectedly is started again, and Chaos does faults to it.
// Nothing here knows a schema, a queue or a job, and servers of others are left alone.
//
// What holds for every server:
//
//   - It listens on 127.0.0.1 only, on a free port outside the range from which
//     the system takes ports for outgoing connections, so that the same port is
//     still free when the server is started again.
//   - It belongs to this process. Its folder is locked while it runs. On Linux the
//     kernel ends it when the parent dies, however it dies; elsewhere a server that
//     outlived its parent is stopped by the next start on the same folder.
//   - It never runs as root. A root parent runs it as an unprivileged user; see
//     ServerOptions.Dir for what that asks of the folder.
//   - What it prints goes to a log file in its folder, which a start puts aside when it is large.
//
// A context given to a Start function bounds the start, not the life of what is started.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/client"
)

// Stack is a running service. Its methods may be called from several goroutines.
type Stack struct {
	o   Options
	log *slog.Logger
	env environ // not changed once the first process runs
	url string
	// clock moves the clock; nil without Options.Clock.
	clock *client.Client

	servers               *Servers // nil: foreign
	databaseURL, redisURL string   // direct

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ops    sync.WaitGroup // calls under way, the watch over the servers
	// running counts supervised processes; only calls under way add to it.
	running sync.WaitGroup
	// serverFault is held while Postgres or Redis is stopped or started: one of them is disturbed at a time.
	serverFault *semaphore.Weighted
	next        atomic.Uint64 // which api process gets the next connection
	close       func() error
	starts      sync.RWMutex // Restart holds it while no process may start

	mu         sync.Mutex
	closed     bool
	apis       []*member
	deliverers []*member
	workers    []*member
	faulty     []*proxy // those that faults may be done to
	scaling    Scaling
}

// Scaling is what Scale has done.
type Scaling struct {
	Stopped int           // processes
	Slowest time.Duration // the longest time that one of them took from SIGTERM to its end
}

// errClosed is what calls return that Close has overtaken.
var errClosed = errors.New("the stack is closed")

// Start starts everything and returns once it is ready. After an error nothing is left running. The context bounds the start
// only.
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
		s.env, s.databaseURL, s.redisURL = newEnviron(s.o, s.o.DatabaseURL, s.o.RedisURL), s.o.DatabaseURL, s.o.RedisURL
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
		s.clock, err = newClock(ctx, s.url)
	}
	return err
}

// prepare makes ready what api and deliverer need.
func (s *Stack) prepare(ctx context.Context) error {
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	database, databaseErr := s.throughProxy("postgres", s.databaseURL)
	redis, redisErr := s.throughProxy("redis", s.redisURL)
	s.env = newEnviron(s.o, database, redis)
	return errors.Join(databaseErr, redisErr, s.chooseURL())
}

// migrate brings the schema up to date.
func (s *Stack) migrate(ctx context.Context) error {
	c := s.command("migrate", environ{"FORGERUN_DATABASE_URL": s.databaseURL})
	c.Args = []string{"migrate"}
	if err := RunProcess(ctx, c); err != nil {
		return fmt.Errorf("forgerun migrate: %w", err)
	}
	return nil
}

// chooseURL chooses the address of the API: that of a proxy with Faults, else that of the one process.
func (s *Stack) chooseURL() (err error) {
	var address string
	if s.o.Faults {
		address, err = s.addProxy("api", cmp.Or(s.o.Listen, anyAddress), s.dialAPI)
	} else {
		address, err = FreeAddress()
	}
	s.url = "http://" + address
	if s.o.Env["FORGERUN_PUBLIC_URL"] == "" {
		s.env["FORGERUN_PUBLIC_URL"] = s.url
	}
	return err
}

// URL is the address of the API, the same for the stack's life; "" beside foreign servers.
func (s *Stack) URL() string { return s.url }

// DatabaseURL is the address of Postgres itself, around any proxy.
func (s *Stack) DatabaseURL() string { return s.databaseURL }

// RedisURL is the address of Redis itself, around any proxy.
func (s *Stack) RedisURL() string { return s.redisURL }

// Logs is the folder with the logs of all processes, which stay.
func (s *Stack) Logs() string { return filepath.Join(s.o.Dir, "logs") }

// MetricsURLs are the addresses of the metrics of all processes that live now.
func (s *Stack) MetricsURLs() []string {
	var urls []string
	for _, m := range s.members() {
		if r := m.living(); r != nil {
			urls = append(urls, "http://"+r.admin+"/metrics")
		}
	}
	return urls
}

// Processes is the number of processes that are wanted now.
func (s *Stack) Processes() int { return len(s.members()) }

// Workers is the number of worker processes that are wanted now.
func (s *Stack) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Scale starts or stops worker processes until there are n, and returns once
// the new ones are ready and the others, which get SIGTERM, have ended. The
// number holds even if the wait ends early with the context. It may be called
// while faults are done, by one goroutine at a time.
func (s *Stack) Scale(ctx context.Context, n int) error {
	if n < 0 || n > maxWorkers {
		return fmt.Errorf("%d workers: allowed is a number from 0 to %d", n, maxWorkers)
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	wanted, dropped := s.resize(&s.workers, "worker", n)
	return errors.Join(stopMembers(ctx, dropped), awaitReady(ctx, wanted))
}

// Scaling tells what Scale has done so far.
func (s *Stack) Scaling() Scaling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scaling
}

func (s *Stack) noteStop(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scaling.Stopped++
	s.scaling.Slowest = max(s.scaling.Slowest, took)
}

// begin is the start of a call that Close waits for: its context ends with the stack.
func (s *Stack) begin(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errClosed
	}
	s.ops.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		unhook()
		cancel(nil)
		s.ops.Done()
	}, nil
}

// Restart stops all processes but the servers, starts them again when until has passed, and returns once all are ready. down is
// when the last one had stopped, up when they were started.
func (s *Stack) Restart(ctx context.Context, until time.Time) (down, up time.Time, err error) {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return down, up, err
	}
	defer done()
	s.starts.Lock()
	var stops errgroup.Group
	for _, m := range s.members() {
		if r := m.living(); r != nil {
			stops.Go(func() error { return r.Stop(s.env.stopPatience()) })
		}
	}
	err = stops.Wait()
	down = time.Now()
	Sleep(ctx, time.Until(until))
	up = time.Now()
	s.starts.Unlock()
	return down, up, errors.Join(err, awaitReady(ctx, s.members()))
}

// Heal returns once every process is ready and the clock runs as usual. Faults that are over have been undone, and others undo
// themselves.
func (s *Stack) Heal(ctx context.Context) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.heal(ctx)
}

func (s *Stack) heal(ctx context.Context) error {
	if s.servers != nil {
		if err := s.healServers(ctx); err != nil {
			return err
		}
	}
	for _, m := range s.members() {
		if err := m.awaitReady(ctx); err != nil && m.ctx.Err() == nil { // it is still wanted
			return err
		}
	}
	if s.clock != nil {
		return s.move(ctx, ordinary)
	}
	return nil
}

// Close ends everything, calls under way too, and removes the servers' data. Nothing but logs is left. A process that had to
// be killed is an error. Further calls return the same.
func (s *Stack) Close() error { return s.close() }

func (s *Stack) end() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel() // this ends the processes too
	s.ops.Wait()
	var errs []error
	s.running.Wait()
	for _, m := range s.members() {
		errs = append(errs, m.err)
	}
	for _, p := range s.proxies() {
		p.close()
	}
	if s.servers != nil {
		errs = append(errs, s.servers.Close())
	}
	return errors.Join(errs...)
}

const (
	// maxWorkers is how many worker processes Postgres has connections for, at some 20 for each process.
	maxWorkers     = 32
	maxConnections = "1000"
	// serverPatience bounds the way back of a server after a fault.
	serverPatience = 60 * time.Second
	// watchPeriod is how often the servers are checked.
	watchPeriod = time.Second
)

// startServers starts Postgres and Redis on empty folders. Writes are forced to disk as in production.
func (s *Stack) startServers(ctx context.Context) (err error) {
	o := func(name string, settings map[string]string) *ServerOptions {
		return &ServerOptions{Settings: settings, Logger: s.log, log: s.logOf(name)}
	}
	s.servers, err = Temp(ctx, o("postgres", map[string]string{"max_connections": maxConnections}), o("redis", nil))
	if err != nil {
		return err
	}
	s.databaseURL, s.redisURL = s.servers.Postgres.URL(), s.servers.Redis.URL()
	s.ops.Go(s.watchServers)
	return nil
}

func (s *Stack) logOf(name string) string { return filepath.Join(s.Logs(), name+".log") }

// watchServers starts servers that ended unexpectedly.
func (s *Stack) watchServers() {
	for Sleep(s.ctx, watchPeriod) {
		if err := s.healServers(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Error("a server does not come back", "error", err)
		}
	}
}

// healServers starts what does not run, once a fault that is done to a server is over.
func (s *Stack) healServers(ctx context.Context) error {
	if s.serverFault.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.serverFault.Release(1)
	return errors.Join(s.servers.Postgres.Start(ctx), s.servers.Redis.Start(ctx))
}
