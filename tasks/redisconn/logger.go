package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// asynqLog is asynq's logger. It logs asynq's info messages as debug. During a failure, asynq repeats warnings, so each kind is logged at
// most once per logEvery.
type asynqLog struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*rate.Sometimes // rate limits; key: beginning of the message
}

const (
	logEvery = 10 * time.Second
	logKind  = 20
)

// archiving is the beginning of asynq's message about each archived task. Such a message is logged as debug, because the task's handler
// has logged the failure.
const archiving = "Retry exhausted for task"

// NewAsynqLog makes the logger of asynq servers.
func NewAsynqLog(log *slog.Logger) asynq.Logger {
	return &asynqLog{log: log.With("component", "asynq"), kinds: map[string]*rate.Sometimes{}}
}

func (l *asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l *asynqLog) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l *asynqLog) Warn(args ...any) {
	if message := fmt.Sprint(args...); strings.HasPrefix(message, archiving) {
		l.log.Debug(message)
		return
	}
	l.write(slog.LevelWarn, args)
}
func (l *asynqLog) Error(args ...any) { l.write(slog.LevelError, args) }

// Fatal does not end the process, unlike asynq's own logger.
func (l *asynqLog) Fatal(args ...any) { l.write(slog.LevelError, args) }

func (l *asynqLog) write(level slog.Level, args []any) {
	message := fmt.Sprint(args...)
	kind := message[:min(logKind, len(message))]
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.kinds) > 100 {
		clear(l.kinds)
	}
	if l.kinds[kind] == nil {
		l.kinds[kind] = &rate.Sometimes{Interval: logEvery}
	}
	l.kinds[kind].Do(func() { l.log.Log(context.Background(), level, message) })
}

// goRedisLog logs the messages of go-redis, such as each failed dial, at debug level. Circuit already logs outages.
type goRedisLog struct{ log *slog.Logger }

func (l goRedisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug(strings.TrimSpace(fmt.Sprintf(format, v...)))
}

var goRedisOnce sync.Once

// routeGoRedisLog sets the logger of go-redis. The whole process shares it, so only the first call has an effect.
func routeGoRedisLog(log *slog.Logger) {
	goRedisOnce.Do(func() { redis.SetLogger(goRedisLog{log.With("component", "go-redis")}) })
}
