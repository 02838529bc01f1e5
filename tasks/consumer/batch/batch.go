// Package batch replaces two private scripts of asynq: the one by which a server fetches a task ("dequeue") and the one by which it
// removes a handled one ("done"). asynq makes an exchange for each task and polls without a pause; here many tasks go in one
// exchange, and an idle server waits to be woken.
//
// Scripts are recognized by the names of their keys, and what is done instead leaves the same keys behind. Both hold for one
// version of asynq: Supported is false with any other, and a test compares every key.
package batch

import (
	"context"
	"runtime/debug"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// asynqVersion is the version whose scripts are replaced.
const asynqVersion = "v0.26.0"

// Supported reports whether this program has the version of asynq whose scripts are known here.
func Supported() bool {
	info, _ := debug.ReadBuildInfo()
	return supports(info)
}

// supports takes a program that lists no modules, such as a test, for one with the version in go.mod.
func supports(info *debug.BuildInfo) bool {
	if info == nil || len(info.Deps) == 0 {
		return true
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/hibiken/asynq" {
			return dep.Replace == nil && dep.Version == asynqVersion
		}
	}
	return false
}

// Config is of the broker of a queue.
type Config struct {
	Queue       string
	Concurrency int // how many tasks are handled at once
	// CheckInterval is how often an idle consumer looks for tasks without a wake-up.
	CheckInterval time.Duration
	Timeout       time.Duration // of each exchange
	Moved         func()        // called when some tasks' time has come, and they are in the queue
}

// Broker is the client that a consumer gives to its asynq servers. It passes on their commands, except for the two scripts. What
// they write about the tasks they run is shortened, and the script that looks for tasks whose time has come is observed.
type Broker struct {
	redis.UniversalClient
	keys     queueKeys
	fetcher  *fetcher
	finisher finisher
	moved    func()
}

// New makes a broker on the client.
func New(client redis.UniversalClient, cfg Config) *Broker {
	fetcher := newFetcher(client, cfg)
	return &Broker{
		UniversalClient: client, keys: fetcher.keys, fetcher: fetcher, finisher: newFinisher(client, cfg.Queue), moved: cfg.Moved,
	}
}

// Start begins to remove handled tasks. It may be called again.
func (b *Broker) Start() { b.finisher.Start() }

// Idle reports whether a server waits to be woken.
func (b *Broker) Idle() bool { return len(b.fetcher.watch) == 1 }

// WakeUp says that there may be tasks. It never waits.
func (b *Broker) WakeUp() { b.fetcher.wakeUp() }

// Handle runs a handler, and counts it while it runs, even if it panics.
func (b *Broker) Handle(handle func() error) error {
	b.fetcher.slots.enter()
	defer b.fetcher.slots.leave()
	return handle()
}

// Quiet stops fetching, and puts back what was fetched and not handed over. It may be called again, and before Start.
func (b *Broker) Quiet() { b.fetcher.silence() }

// Stop removes the handled tasks that wait, within ctx, and ends. It comes after the servers' end. It may be called again, and
// before Start.
func (b *Broker) Stop(ctx context.Context) error { return b.finisher.Stop(ctx) }

// EvalSha is how asynq runs a script.
func (b *Broker) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch k := b.keys; {
	case len(keys) == 4 && keys[0] == k.pending && keys[1] == k.paused && len(args) == 2:
		return b.dequeue(ctx, args[0])
	case len(keys) == 5 && keys[0] == k.active && keys[1] == k.lease && strings.HasPrefix(keys[2], k.task) && len(args) == 3:
		return b.done(ctx, handled{id: keys[2][len(k.task):], countKey: keys[3], countEnd: args[1]})
	}
	return b.observe(keys, b.UniversalClient.EvalSha(ctx, sha, keys, shown(keys, args)...))
}

// Eval is how asynq runs a script that Redis does not know yet.
func (b *Broker) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return b.observe(keys, b.UniversalClient.Eval(ctx, script, keys, shown(keys, args)...))
}

// maxShown is how many running tasks of each server the dashboard shows: asynq writes all of them every 5 s, for it alone.
const maxShown = 100

// shown shortens the arguments of asynq's script about a server: expiry, the server, then name and description of each running task.
func shown(keys []string, args []any) []any {
	if len(keys) == 2 && strings.HasPrefix(keys[1], "asynq:workers:") && len(args) > 2+2*maxShown {
		return args[:2+2*maxShown]
	}
	return args
}

func (b *Broker) dequeue(ctx context.Context, leaseEnd any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if message, err := b.fetcher.fetch(ctx, leaseEnd); err != nil {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(message)
	}
	return cmd
}

func (b *Broker) done(ctx context.Context, t handled) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	if err := b.finisher.finish(t); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// observe passes an answer on, and calls moved if it says that the time of some tasks has come.
func (b *Broker) observe(keys []string, answer *redis.Cmd) *redis.Cmd {
	if len(keys) == 2 && keys[1] == b.keys.pending {
		if n, err := answer.Int(); err == nil && n > 0 {
			b.fetcher.signal.fire()
			b.moved()
		}
	}
	return answer
}

// queueKeys are the keys that asynq has for a queue.
type queueKeys struct {
	pending, paused, active, lease string
	count                          string // of all tasks that were handled
	task                           string // what the keys of tasks begin with
}

func keysOf(queue string) queueKeys {
	key := func(name string) string { return redisconn.QueueKey(queue, name) }
	return queueKeys{
		pending: key("pending"), paused: key("paused"), active: key("active"),
		lease: key("lease"), count: key("processed"), task: redisconn.TaskKey(queue, ""),
	}
}
