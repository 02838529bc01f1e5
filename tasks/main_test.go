package tasks

import (
	"context"
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

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// within bounds every wait for something that will happen.
const within = 30 * time.Second

var (
	sharedRedis *devstack.Redis
	lastDB      atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts the Redis that most tests share, each with a database of its own,
// and checks that all tests together left no goroutine behind.
func run(m *testing.M) int {
	stack, err := devstack.Temp(context.Background(), devstack.TempOptions{
		WithoutPostgres: true, Redis: map[string]string{"databases": "10000"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = stack.Close() }()
	sharedRedis = stack.Redis
	before := runtime.NumGoroutine()
	if code := m.Run(); code != 0 || flag.Lookup("test.fuzz").Value.String() != "" {
		return code // fuzzing leaves goroutines of its own
	}
	for deadline := time.Now().Add(within); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "goroutines were left behind:")
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 0
}

// ownRedis starts a server that the test may stop, kill and pause.
func ownRedis(t testing.TB) *devstack.Redis {
	t.Helper()
	stack, err := devstack.Temp(t.Context(), devstack.TempOptions{WithoutPostgres: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stack.Close()) })
	return stack.Redis
}

// newDB connects to an empty database of the shared server.
func newDB(t testing.TB) *Redis {
	t.Helper()
	return connect(t, newDBURL())
}

func newDBURL() string {
	return strings.TrimSuffix(sharedRedis.URL(), "/0") + fmt.Sprint("/", lastDB.Add(1))
}

// connect makes a patient connection: a machine under load is no fault.
func connect(t testing.TB, url string) *Redis {
	t.Helper()
	return connectFor(t, url, within)
}

// connectHanging is for tests in which Redis hangs.
func connectHanging(t testing.TB, url string) *Redis {
	t.Helper()
	return connectFor(t, url, 2*time.Second)
}

func connectFor(t testing.TB, url string, timeout time.Duration) *Redis {
	t.Helper()
	r, err := Connect(url, Options{
		Registry: prometheus.NewRegistry(), Timeout: timeout,
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// testLog shows the log of a failed test.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Helper()
	if l.t.Context().Err() == nil { // a test must not log after its end
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func startQueue(t testing.TB, r *Redis, cfg QueueConfig) *Queue {
	t.Helper()
	q := NewQueue(r, cfg)
	q.Start()
	t.Cleanup(func() { _ = q.Stop(context.Background()) })
	return q
}

func startWorkers(t testing.TB, r *Redis, cfg WorkersConfig, handle func(context.Context, job.Task) error) *JobConsumer {
	t.Helper()
	w := NewJobConsumer(r, cfg, handle, func(job.ID) {})
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(w.Stop)
	return w
}

func inspector(r *Redis) *asynq.Inspector { return asynq.NewInspector(sharedClient{r}) }

var lastID atomic.Uint32

// newTask is a task of a job of its own.
func newTask() job.Task {
	n := lastID.Add(1)
	id := job.ID{0: 1, 6: 0x70, 8: 0x80, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
	return job.Task{JobID: id, Attempt: 1}
}

func newTasks(n int) []job.Task {
	ts := make([]job.Task, n)
	for i := range ts {
		ts[i] = newTask()
	}
	return ts
}

// stateOf is a task's state in Redis, "" for none.
func stateOf(t testing.TB, r *Redis, task job.Task) string {
	t.Helper()
	fields, err := r.client.HGetAll(context.Background(), taskKey(queueJobs, taskName(task))).Result()
	require.NoError(t, err)
	return fields["state"]
}

func eventually(t testing.TB, condition func() bool, what ...any) {
	t.Helper()
	require.Eventually(t, condition, within, 5*time.Millisecond, what...)
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(within):
		require.FailNow(t, "timed out waiting for "+what)
		panic("unreachable")
	}
}

func value(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }
