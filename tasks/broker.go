package tasks

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// broker is the client that a consumer gives to its asynq servers. It passes on
// what they ask of Redis except for some scripts, which it knows by their keys. Two
// are replaced: they would fetch and remove each task in an exchange of its own,
// and ask for tasks without a pause. What a server tells of its running tasks is
// shortened. The script that looks for tasks whose time has come is observed.
// Should another version of asynq use other keys, all of it still works, at its
// price.
type broker struct {
	redis.UniversalClient
	keys     queueKeys
	fetcher  *fetcher
	finisher *finisher
	moved    func() // some tasks' time has come, and they are in the queue
}

func (b *broker) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	switch k := b.keys; {
	case len(keys) == 4 && keys[0] == k.pending && keys[1] == k.paused && len(args) == 2:
		return b.dequeue(ctx, args[0])
	case len(keys) == 5 && keys[0] == k.active && keys[1] == k.lease && strings.HasPrefix(keys[2], k.task) && len(args) == 3:
		return b.done(ctx, keys[2][len(k.task):], dayCount{keys[3], args[1]})
	}
	return b.tellMoved(keys, b.UniversalClient.EvalSha(ctx, sha, keys, shown(keys, args)...))
}

// Eval is how asynq runs a script that Redis does not know yet.
func (b *broker) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return b.tellMoved(keys, b.UniversalClient.Eval(ctx, script, keys, shown(keys, args)...))
}

// maxShown is how many running tasks of each server the dashboard shows: asynq
// writes all of them anew every 5 s, for nobody else.
const maxShown = 100

// shown shortens what asynq's script about a server gets: how long it is kept,
// the server, then name and description of each running task.
func shown(keys []string, args []any) []any {
	if len(keys) == 2 && strings.HasPrefix(keys[1], "asynq:workers:") && len(args) > 2+2*maxShown {
		return args[:2+2*maxShown]
	}
	return args
}

func (b *broker) dequeue(ctx context.Context, leaseEnd any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if message, err := b.fetcher.fetch(ctx, leaseEnd); err != nil {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(message)
	}
	return cmd
}

func (b *broker) done(ctx context.Context, id string, day dayCount) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	if err := b.finisher.finish(id, day); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// tellMoved passes an answer on, and tells if it says that the time of some tasks
// has come.
func (b *broker) tellMoved(keys []string, answer *redis.Cmd) *redis.Cmd {
	if len(keys) == 2 && keys[1] == b.keys.pending {
		if n, err := answer.Int(); err == nil && n > 0 {
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
	return queueKeys{
		pending: queueKey(queue, "pending"), paused: queueKey(queue, "paused"), active: queueKey(queue, "active"),
		lease: queueKey(queue, "lease"), count: queueKey(queue, "processed"), task: taskKey(queue, ""),
	}
}
