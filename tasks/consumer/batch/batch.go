// Package batch replaces private scripts of asynq: those by which a server fetches a task ("dequeue"), and by which it removes or
// archives a handled one ("done", "archive"). asynq makes an exchange for each task and polls without a pause; here many tasks go
// in one exchange, and an idle server waits to be woken. Tasks whose time comes are moved at that time and not at the next second,
// and a task that came early goes back among them.
//
// Scripts are recognized by the names of their keys, and what is done instead leaves the same keys behind. A test compares every
// key with what the version of asynq in go.mod leaves.
package batch

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Config is of the broker of a queue.
type Config struct {
	Queue       string
	Concurrency int // how many tasks are handled at once
	// CheckInterval is how often an idle consumer looks for tasks without a wake-up.
	CheckInterval time.Duration
	// DelayedCheckInterval is how often a consumer at least looks when the next task's time comes.
	DelayedCheckInterval time.Duration
	Timeout              time.Duration   // of each exchange
	Moved                func()          // called when some tasks' time has come, and they are in the queue
	Stopping             <-chan struct{} // closed before the servers are shut down
	Clock                *clock.Clock    // by which scheduled tasks wait for their time
}

// Broker is the client that a consumer gives to its asynq servers. It passes on their commands, except for the scripts that it
// replaces. What they write about the tasks they run is shortened.
type Broker struct {
	redis.UniversalClient
	keys      queueKeys
	fetcher   *fetcher
	forwarder *forwarder
	endings   endings
	moved     func()
}

// New makes a broker on the client.
func New(client redis.UniversalClient, cfg Config) *Broker {
	fetcher := newFetcher(client, cfg)
	return &Broker{
		UniversalClient: client, keys: fetcher.keys, fetcher: fetcher, moved: cfg.Moved,
		forwarder: &forwarder{
			client: client, keys: fetcher.keys, every: cfg.DelayedCheckInterval, due: make(chan struct{}, 1), stop: cfg.Stopping,
			clock: cfg.Clock,
		},
	}
}

// Start begins to remove handled tasks. It may be called again.
func (b *Broker) Start() { b.fetcher.finisher.Start() }

// Idle reports whether a server waits to be woken.
func (b *Broker) Idle() bool { return len(b.fetcher.watch) == 1 }

// WakeUp says that there may be tasks, or some whose time comes soon. It never waits.
func (b *Broker) WakeUp() {
	b.fetcher.wakeUp()
	b.forwarder.tell()
}

// Handle runs the handler of the task that ctx is of, and counts it while it runs, even if it panics. The errors of package job
// about a handled task are understood; a stale one is for asynq as one that is done.
func (b *Broker) Handle(ctx context.Context, handle func() error) error {
	b.fetcher.slots.enter()
	defer b.fetcher.slots.leave()
	err := handle()
	b.endings.note(ctx, err)
	if errors.Is(err, job.ErrTaskStale) {
		return nil
	}
	return err
}

// Hold stops fetching for now, and puts back what was fetched and not handed over, or goes on.
func (b *Broker) Hold(on bool) { b.fetcher.hold(on) }

// Quiet stops fetching, and puts back what was fetched and not handed over. It may be called again, and before Start.
func (b *Broker) Quiet() { b.fetcher.silence() }

// Stop removes the handled tasks that wait, within ctx, and ends. It comes after the servers' end. It may be called again, and
// before Start.
func (b *Broker) Stop(ctx context.Context) error { return b.fetcher.finisher.Stop(ctx) }

// EvalSha is how asynq runs a script.
func (b *Broker) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch k := b.keys; {
	case len(keys) == 4 && keys[0] == k.pending && keys[1] == k.paused && len(args) == 2:
		return b.dequeue(ctx, args[0])
	case len(keys) == 5 && keys[0] == k.active && keys[1] == k.lease && k.isTask(keys[2]) && len(args) == 3:
		return b.done(ctx, keys[2][len(k.task):])
	case len(keys) == 9 && k.isTask(keys[0]) && keys[1] == k.active && keys[3] == k.archived && len(args) == 7:
		return b.finish(ctx, keys[0][len(k.task):], taskFailed, args[1])
	case len(keys) == 8 && k.isTask(keys[0]) && keys[1] == k.active && keys[3] == k.retry:
		id := keys[0][len(k.task):]
		if early, ok := errors.AsType[*job.TaskEarly](b.endings.take(id)); ok {
			return b.finish(ctx, id, taskEarly, redisconn.Score(b.forwarder.clock.Now().Add(early.Wait)))
		}
	case b.forwards(keys, args):
		if !b.forwarder.await(ctx) {
			return answered(ctx, int64(0))
		}
		args = b.forwarder.exactly(args)
	}
	return b.observe(keys, b.UniversalClient.EvalSha(ctx, sha, keys, shown(keys, args)...))
}

// Eval is how asynq runs a script that Redis does not know yet.
func (b *Broker) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	if b.forwards(keys, args) {
		args = b.forwarder.exactly(args)
	}
	return b.observe(keys, b.UniversalClient.Eval(ctx, script, keys, shown(keys, args)...))
}

// forwards reports whether the script is the one that moves scheduled tasks whose time has come.
func (b *Broker) forwards(keys []string, args []any) bool {
	return len(keys) == 2 && keys[0] == b.keys.scheduled && keys[1] == b.keys.pending && len(args) == 4
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
	message, err := b.fetcher.fetch(ctx, leaseEnd)
	if err != nil {
		return failed(ctx, err)
	}
	return answered(ctx, message)
}

func (b *Broker) done(ctx context.Context, id string) *redis.Cmd {
	if b.endings.take(id) != nil {
		return b.finish(ctx, id, taskStale, "")
	}
	return b.finish(ctx, id, taskDone, "")
}

func (b *Broker) finish(ctx context.Context, id, as string, value any) *redis.Cmd {
	if err := b.fetcher.finisher.finish(id, as, value); err != nil {
		return failed(ctx, err)
	}
	return answered(ctx, "OK")
}

func answered(ctx context.Context, value any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal(value)
	return cmd
}

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// observe passes an answer on, and calls moved if it says that the time of some tasks has come.
func (b *Broker) observe(keys []string, answer *redis.Cmd) *redis.Cmd {
	if len(keys) != 2 || keys[1] != b.keys.pending {
		return answer
	}
	if keys[0] == b.keys.scheduled {
		b.forwarder.ran(answer)
	}
	if n, err := answer.Int(); err == nil && n > 0 {
		b.fetcher.signal.fire()
		b.moved()
	}
	return answer
}

// queueKeys are the keys that asynq has for a queue.
type queueKeys struct {
	pending, paused, active, lease, scheduled, retry, archived string
	task                                                       string // what the keys of tasks begin with
}

func keysOf(queue string) queueKeys {
	key := func(name string) string { return redisconn.QueueKey(queue, name) }
	return queueKeys{
		pending: key("pending"), paused: key("paused"), active: key("active"), lease: key("lease"), scheduled: key("scheduled"),
		retry: key("retry"), archived: key("archived"), task: redisconn.TaskKey(queue, ""),
	}
}

func (k queueKeys) isTask(key string) bool { return strings.HasPrefix(key, k.task) }
