package consumer

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// pacePause is how long each failed command of a consumer takes at least.
const pacePause = 200 * time.Millisecond

// pacer is a go-redis hook for consumers: asynq fetches again at once when a fetch fails, and would spin until Redis works.
type pacer struct {
	redis *redisconn.Redis
	stop  <-chan struct{} // closed: no more pauses
}

func (p pacer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p pacer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if errors.Is(ctx.Err(), context.Canceled) { // asynq cancels it itself before it tries again to record how a task ended
			ctx = context.WithoutCancel(ctx)
		}
		err := next(ctx, cmd)
		if isOutage(err) {
			p.redis.Metrics.Errors.WithLabelValues("work").Inc()
			redisconn.Pause(ctx, pacePause, p.stop)
		}
		return err
	}
}

func (p pacer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// isOutage distinguishes failures of Redis from answers that asynq expects: an empty queue, an unknown script, a task that is
// gone.
func isOutage(err error) bool {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, context.Canceled) {
		return false
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return true
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	return !strings.HasPrefix(text, "NOSCRIPT") && !strings.HasPrefix(text, "NOT FOUND")
}
