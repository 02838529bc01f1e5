// Package redistest provides helpers for tests in the folder tasks.
//
// Mini is an embedded Redis, enough for simple commands. DB is a database of a real server. Tests of blocking commands, publishing,
// persistence, expiry and asynq's scripts need DB. Own is a server that the test may break. "go test -short" skips tests with real
// servers.
package redistest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

// Within is the longest time that a test waits for an expected event.
var Within = testkit.Patience

// nil with -short
var shared *stack.Redis

var lastDB, lastID atomic.Int64

// Main runs a package's tests and checks that no goroutine is left over.
func Main(m *testing.M) int {
	flag.Parse()
	if !testing.Short() {
		servers, err := stack.Temp(context.Background(), nil, &stack.ServerOptions{Settings: map[string]string{"databases": "10000"}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = servers.Close() }()
		shared = servers.Redis
	}
	before := runtime.NumGoroutine()
	if code := m.Run(); code != 0 || flag.Lookup("test.fuzz").Value.String() != "" {
		return code // fuzzing leaves goroutines behind
	}
	for deadline := time.Now().Add(Within); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines are left:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
	}
	return 0
}

// NeedServer skips the test if -short is set: no server is running then.
func NeedServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real Redis")
	}
}

// Own starts a server that the test may stop, kill and pause.
func Own(t testing.TB) *stack.Redis {
	t.Helper()
	NeedServer(t)
	servers, err := stack.Temp(t.Context(), nil, &stack.ServerOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Close()) })
	return servers.Redis
}

// Shared returns the real server that most tests share. Each test uses its own database.
func Shared(t testing.TB) *stack.Redis {
	t.Helper()
	NeedServer(t)
	return shared
}

// URL returns the address of an empty database of the shared server.
func URL(t testing.TB) string {
	t.Helper()
	return strings.TrimSuffix(Shared(t).URL(), "/0") + fmt.Sprint("/", lastDB.Add(1))
}

// MiniURL starts an embedded Redis for the test, and returns its address.
func MiniURL(t testing.TB) string {
	t.Helper()
	mini := miniredis.RunT(t)
	go func() { // miniredis has no clock: keys expire only when FastForward is called
		for last := time.Now(); stack.Sleep(t.Context(), 100*time.Millisecond); {
			now := time.Now()
			mini.FastForward(now.Sub(last))
			last = now
		}
	}()
	return "redis://" + mini.Addr() + "/0"
}

// Log returns a logger that writes to the test's log, which is shown if the test fails.
func Log(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(testLog{t}, nil)) }

type testLog struct{ testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.Helper()
	if l.Context().Err() == nil { // logging after the end of a test panics
		l.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// Task returns a task of a new job.
func Task() job.Task {
	n := lastID.Add(1)
	id := job.ID{0: 1, 6: 0x70, 8: 0x80, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
	return job.Task{JobID: id, Attempt: 1}
}

// Tasks returns n tasks of new jobs.
func Tasks(n int) []job.Task { return many(n, Task) }

// IDs returns the ids of n clients.
func IDs(n int) []job.ID { return many(n, func() job.ID { return Task().JobID }) }

// Deliveries returns n tasks of deliveries, each to its own endpoint.
func Deliveries(n int) []job.DeliveryTask {
	return many(n, func() job.DeliveryTask {
		return job.DeliveryTask{ID: Task().JobID, ClientID: Task().JobID, Endpoint: Task().JobID}
	})
}

func many[T any](n int, one func() T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = one()
	}
	return all
}

// Eventually waits until the condition is true. The test fails if that takes too long.
func Eventually(t testing.TB, condition func() bool, what ...any) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprint(what...), condition)
}

// Receive returns the next value of the channel. The test fails if none arrives in time.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(Within):
		require.FailNow(t, "timed out waiting for "+what)
		panic("unreachable")
	}
}

// Start calls s.Start now and s.Stop at the end of the test.
func Start[T interface {
	Start()
	Stop(ctx context.Context) error
}](t testing.TB, s T) T {
	s.Start()
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

// Ensure asserts that q creates all of the tasks.
func Ensure(t testing.TB, q interface {
	Ensure(ctx context.Context, ts []job.Task) (made int, err error)
}, ts ...job.Task) {
	t.Helper()
	require.Equal(t, len(ts), Must(q.Ensure(t.Context(), ts))(t))
}

// Must returns the value of a call that has to succeed: Must(f())(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// DB connects to an empty database of the shared server.
func DB(t testing.TB) *redisconn.Redis {
	t.Helper()
	return Connect(t, URL(t))
}

// Mini connects to a new embedded Redis.
func Mini(t testing.TB) *redisconn.Redis {
	t.Helper()
	return Connect(t, MiniURL(t))
}

// Connect makes a connection with a long timeout, so that a slow machine does not make tests fail.
func Connect(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return ConnectTimeout(t, url, Within)
}

// ConnectHanging makes a connection with a short timeout, for tests in which Redis hangs.
func ConnectHanging(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return ConnectTimeout(t, url, 2*time.Second)
}

// ConnectTimeout makes a connection with the given timeout.
func ConnectTimeout(t testing.TB, url string, timeout time.Duration) *redisconn.Redis {
	t.Helper()
	r, err := redisconn.Connect(url, redisconn.Options{Registry: prometheus.NewRegistry(), Timeout: timeout, Logger: Log(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// StateOf returns the asynq state of a task, or "" if the task is not in the queue.
func StateOf(t testing.TB, r *redisconn.Redis, queue, id string) string {
	t.Helper()
	state, err := r.Client.HGet(context.Background(), redisconn.QueueKey(queue, "t:"+id), "state").Result()
	if err != nil {
		require.ErrorIs(t, err, redis.Nil)
	}
	return state
}

// JobState returns the state of a job's task in Redis, or "" if there is none.
func JobState(t testing.TB, r *redisconn.Redis, task job.Task) string {
	t.Helper()
	name := fmt.Sprintf("%s:%d", task.JobID, task.Attempt)
	if task.Dispatch > 0 {
		name += fmt.Sprint(":", task.Dispatch)
	}
	return StateOf(t, r, redisconn.Jobs, name)
}

// Info returns asynq's information about a queue. It is empty if the queue does not exist.
func Info(t testing.TB, r *redisconn.Redis, queue string) *asynq.QueueInfo {
	t.Helper()
	info, err := r.QueueInfo(queue)
	if !errors.Is(err, asynq.ErrQueueNotFound) {
		require.NoError(t, err)
	}
	return info
}
