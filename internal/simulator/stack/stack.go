package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/forgerun/forgerun/internal/devstack"
)

// Options says what a stack is made of.
type Options struct {
	// Forgerun is the path of the binary.
	Forgerun string
	// Dir is the folder for the servers' data, which Close removes, and for the
	// logs (in "logs"), which stay. It is made when it is missing. A root parent
	// needs one that others may enter, such as devstack.MkdirTemp makes.
	Dir string
	// Concurrency is the number of jobs at once in a worker process; 0: 100.
	Concurrency int
	// TimeScale multiplies the jobs' durations; 0: jobs take no time.
	TimeScale float64
	// Env is further configuration (FORGERUN_...), which overrides what the stack
	// sets. The addresses of the stores and of the processes cannot be set.
	Env map[string]string
	// Listen is the address of the API; "" for any port of 127.0.0.1.
	Listen string
	// APIs and Webhooks are numbers of processes; 0: one, or none with foreign servers.
	APIs, Webhooks int
	// Lease is after how long a silent worker is dead; 0: 3 s.
	Lease time.Duration
	// Faults leads the connections to Postgres, Redis, the API and receivers through proxies.
	Faults bool
	// Clock makes the service a test bed, whose clock faults may move.
	Clock bool
	// DatabaseURL and RedisURL, both or none, are servers that somebody else runs.
	// No fault is done to them, and no proxy stands before anything but receivers.
	// The schema is brought up to date only if APIs is not 0.
	DatabaseURL, RedisURL string
	// Log gets a line for each process that starts, and for each unasked end; nil: none.
	Log io.Writer
}

// Stack is a running service. Its methods may be called from several goroutines.
type Stack struct {
	o   Options
	log *slog.Logger
	env environ // not changed once the first process runs
	url string

	postgres              *devstack.Postgres // nil: foreign
	redis                 *devstack.Redis    // nil: foreign
	databaseURL, redisURL string             // direct

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	ops    sync.WaitGroup // calls under way, the watch over the servers
	// running counts supervised processes; only calls under way add to it.
	running sync.WaitGroup
	// serverFault is held while Postgres or Redis is stopped or started: one of them is disturbed at a time.
	serverFault *semaphore.Weighted
	scaling     *semaphore.Weighted
	turn        atomic.Uint64 // which api process gets the next connection
	close       func() error

	mu       sync.Mutex
	closed   bool
	apis     []*member
	webhooks []*member
	workers  []*member
	clockKey string   // of the client that moves the clock; "": it was never moved
	balancer *proxy   // in front of the API; nil: it is reached directly
	faulty   []*proxy // those that faults may be done to
}

// errClosed is what calls return that Close has overtaken.
var errClosed = errors.New("the stack is closed")

// Start starts everything but workers (see Scale) and returns once it is ready. After an error nothing is left
// running. The context bounds the start only.
func Start(ctx context.Context, o Options) (*Stack, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Stack{o: o, log: slog.New(slog.NewTextHandler(o.Log, nil)), serverFault: semaphore.NewWeighted(1), scaling: semaphore.NewWeighted(1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.end)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o Options) foreign() bool { return o.DatabaseURL != "" }

// complete checks the options and fills in what was left out.
func (o Options) complete() (Options, error) {
	if o.Forgerun == "" || o.Dir == "" {
		return o, errors.New("stack: Forgerun and Dir are required")
	}
	if (o.DatabaseURL == "") != (o.RedisURL == "") {
		return o, errors.New("the addresses of Postgres and Redis are given together, or neither of them")
	}
	if o.APIs < 0 || o.Webhooks < 0 || o.Concurrency < 0 || o.TimeScale < 0 {
		return o, errors.New("stack: a number of the options is negative")
	}
	for name := range o.Env {
		if err := checkVariable(name); err != nil {
			return o, err
		}
	}
	o.Lease, o.Concurrency = cmp.Or(o.Lease, 3*time.Second), cmp.Or(o.Concurrency, 100)
	if o.Log == nil {
		o.Log = io.Discard
	}
	if !o.foreign() {
		o.APIs, o.Webhooks = max(o.APIs, 1), max(o.Webhooks, 1)
	}
	dir, err := filepath.Abs(o.Dir)
	o.Dir = dir
	return o, err
}

func (s *Stack) start(ctx context.Context) error {
	if err := os.MkdirAll(s.logDir(), 0o755); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if s.o.APIs > 0 {
		if err := s.migrate(ctx); err != nil {
			return err
		}
	}
	database, redis, err := s.proxiedServers()
	if err != nil {
		return err
	}
	s.env = newEnviron(s.o, database, redis)
	if err := s.startAPIs(ctx); err != nil {
		return err
	}
	webhooks, _ := s.resize(&s.webhooks, "webhooks", s.o.Webhooks)
	return awaitReady(ctx, webhooks)
}

// URL is the address of the API, the same for the stack's life; "" without an api process.
func (s *Stack) URL() string { return s.url }

// DatabaseURL is the address of Postgres itself, around any proxy.
func (s *Stack) DatabaseURL() string { return s.databaseURL }

// RedisURL is the address of Redis itself, around any proxy.
func (s *Stack) RedisURL() string { return s.redisURL }

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

// Workers is the number of worker processes that are wanted now.
func (s *Stack) Workers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// Scale starts or stops worker processes until there are n, and returns once
// the new ones are ready and the others, which get SIGTERM, have ended. The
// number holds even if the wait ends early with the context. It may be called
// while faults are done.
func (s *Stack) Scale(ctx context.Context, n int) error {
	if n < 0 || n > maxWorkers {
		return fmt.Errorf("%d workers: allowed is a number from 0 to %d", n, maxWorkers)
	}
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if s.scaling.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.scaling.Release(1)
	wanted, dropped := s.resize(&s.workers, "worker", n)
	return errors.Join(stopMembers(ctx, dropped), awaitReady(ctx, wanted))
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

// Heal undoes every fault and returns once every process is ready.
func (s *Stack) Heal(ctx context.Context) error {
	ctx, done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.heal(ctx)
}

func (s *Stack) heal(ctx context.Context) error {
	for _, m := range s.members() {
		if r := m.current.Load(); r != nil {
			_ = r.Continue() // fails only if it has ended
		}
	}
	for _, p := range s.proxies() {
		p.release()
	}
	if err := s.healServers(ctx); err != nil {
		return err
	}
	for _, m := range s.members() {
		if err := m.awaitHealthy(ctx); err != nil {
			return err
		}
	}
	return s.healClock(ctx)
}

// Close ends everything, calls under way too, and removes the servers' data. A process that had to be killed is an
// error. Further calls return the same.
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
	if s.balancer != nil {
		s.balancer.close()
	}
	return errors.Join(append(errs, s.closeServers())...)
}

// Logs is the folder with the logs of all processes, which stay.
func (s *Stack) Logs() string { return s.logDir() }

func (s *Stack) logDir() string { return filepath.Join(s.o.Dir, "logs") }
