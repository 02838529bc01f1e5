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
)

// asynqLog is asynq's logger. asynq's information is logged as debug. Its warnings repeat during a failure, so each kind is logged at
// most every logEvery.
type asynqLog struct {
	log *slog.Logger

	mu      sync.Mutex
	written map[string]time.Time // by kind: how a message begins
}

const (
	logEvery = 10 * time.Second
	logKind  = 20
)

// archiving begins asynq's message about each archived task: its work failed, and its handler has logged that.
const archiving = "Retry exhausted for task"

// NewAsynqLog makes the logger of asynq servers.
func NewAsynqLog(log *slog.Logger) asynq.Logger {
	return &asynqLog{log: log.With("component", "asynq"), written: map[string]time.Time{}}
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
	if l.due(message[:min(logKind, len(message))], time.Now()) {
		l.log.Log(context.Background(), level, message)
	}
}

func (l *asynqLog) due(kind string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.written[kind]; ok && now.Sub(last) < logEvery {
		return false
	}
	if len(l.written) > 100 {
		clear(l.written)
	}
	l.written[kind] = now
	return true
}

// goRedisLog is the logger of go-redis, which reports each failed dial; Circuit logs outages.
type goRedisLog struct{ log *slog.Logger }

func (l goRedisLog) Printf(_ context.Context, format string, v ...any) {
	l.log.Debug(strings.TrimSpace(fmt.Sprintf(format, v...)))
}

var goRedisOnce sync.Once

// routeGoRedisLog sets the logger of go-redis, which the whole process shares: the first one stays.
func routeGoRedisLog(log *slog.Logger) {
	goRedisOnce.Do(func() { redis.SetLogger(goRedisLog{log.With("component", "go-redis")}) })
}
