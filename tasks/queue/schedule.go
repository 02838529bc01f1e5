package queue

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

//go:embed schedule.lua
var scheduleSource string

var scheduleScript = redis.NewScript(scheduleSource)

// errNoRoom is of a task whose time comes after that of all tasks that wait for theirs, when these are as many as may be.
var errNoRoom = errors.New("the queue has no room for a task of that time")

// put enqueues a task in the named queue, or schedules it if its time has not come, as one of at most so many. Those who take tasks
// from there are told.
func (q *Queue) put(ctx context.Context, name string, t *asynq.Task, at time.Time, room int, options ...asynq.Option) error {
	options = append(slices.Clip(options), asynq.Queue(name))
	if !at.After(time.Now()) {
		_, err := q.client.EnqueueContext(ctx, t, options...)
		if err == nil {
			q.wakeUps[name].Send()
		}
		return err
	}
	p := &plan{at: at, room: room, queue: name}
	_, err := q.client.EnqueueContext(context.WithValue(ctx, planKey{}, p), t, append(options, asynq.ProcessAt(p.second()))...)
	switch {
	case err != nil:
		return err
	case p.refused:
		return errNoRoom
	case time.Until(at) < notify.DueSoon:
		q.dueSoon[name].Send()
	}
	return nil
}

// plan is what asynq does not know of a task that is scheduled.
type plan struct {
	queue   string
	at      time.Time
	room    int
	refused bool // set by the client
}

type planKey struct{}

// second is the time that asynq is given. It drops fractions, so they are rounded up: a task never comes early.
func (p *plan) second() time.Time { return ceilTime(p.at) }

// isOf reports whether the script with these keys and arguments is the one of asynq that schedules the task.
func (p *plan) isOf(keys []string, args []any) bool {
	return len(keys) == 2 && keys[1] == redisconn.QueueKey(p.queue, "scheduled") && len(args) == 3 && args[1] == p.second().Unix()
}

// schedulingClient is the client that asynq enqueues with. It replaces one of its scripts, the one that schedules a task: asynq
// knows whole seconds only, and no bound. A script that is not recognized is asynq's own, and does what it always did.
type schedulingClient struct{ redis.UniversalClient }

// EvalSha is how asynq runs a script.
func (c schedulingClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	p, ok := ctx.Value(planKey{}).(*plan)
	if !ok || !p.isOf(keys, args) {
		return c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	}
	cmd := scheduleScript.Run(ctx, c.UniversalClient, keys, args[0], redisconn.Score(p.at), args[2], p.room, redisconn.TaskKey(p.queue, ""))
	if n, err := cmd.Int(); err == nil && n == 2 {
		p.refused = true
		cmd.SetVal(int64(1))
	}
	return cmd
}
