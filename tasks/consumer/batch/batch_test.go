package batch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// All tasks are running; of those that the dashboard shows there is a bound.
func TestShownTasksAreBounded(t *testing.T) {
	t.Parallel()
	args := make([]any, 2+2*(maxShown+1))
	keys := []string{"asynq:servers:{a:1:b}", "asynq:workers:{a:1:b}"}
	require.Len(t, shown(keys, args), 2+2*maxShown)
	require.Len(t, shown(keys, args[:6]), 6)
	require.Len(t, shown([]string{"x", "y"}, args), len(args), "any other script")
}

// What asynq's own scripts leave in Redis, and what ours leave.
func TestContractWithAsynq(t *testing.T) {
	t.Parallel()
	const n = 50
	ts := redistest.Tasks(n)
	states := map[string][2]map[string]string{} // what is there at each stage, by asynq and by us
	for side, r := range []*redisconn.Redis{redistest.DB(t), redistest.DB(t)} {
		client := r.Client
		if side == 1 {
			client = newBroker(t, r, n, time.Millisecond)
		}
		q := queue.New(r, queue.Config{})
		for _, task := range ts {
			redistest.Dispatch(t, q, task) // in this order
		}
		record := func(stage string) {
			both := states[stage]
			both[side] = keysAndValues(t, r)
			states[stage] = both
		}
		record("enqueued")
		started, release := make(chan struct{}, n), make(chan error)
		serve(t, client, 1, n, func(string) error {
			started <- struct{}{}
			return <-release
		})
		for range n {
			redistest.Receive(t, started, "a handler")
		}
		record("dequeued")
		for range n {
			release <- nil
		}
		redistest.Eventually(t, func() bool {
			return r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "processed")).Val() == strconv.Itoa(n)
		})
		record("done")
		redistest.Dispatch(t, q, ts[0])
		redistest.Receive(t, started, "a handler")
		release <- nil // counted on the same day
		redistest.Eventually(t, func() bool {
			return r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "processed")).Val() == strconv.Itoa(n+1)
		})
		record("done again")
	}
	require.Contains(t, states["dequeued"][0], redisconn.QueueKey(redisconn.Jobs, "lease"))
	require.Contains(t, states["dequeued"][0][redisconn.TaskKey(redisconn.Jobs, queue.TaskName(ts[0]))], "state=active")
	require.Len(t, states["done"][0], 3, "the queue's name and two counters: %v", states["done"][0])
	for stage, both := range states {
		require.Equal(t, both[0], both[1], stage)
	}
}

// archivedMessage is what a message says, but for the second in which its task failed.
func archivedMessage(t *testing.T, r *redisconn.Redis, id string) string {
	t.Helper()
	info := redistest.Must(asynq.NewInspectorFromRedisClient(r.Client).GetTaskInfo(redisconn.Jobs, id))(t)
	require.WithinDuration(t, time.Now(), info.LastFailedAt, redistest.Within)
	return fmt.Sprintf("%s %s %s %q %d %d %v", info.ID, info.Type, info.Payload, info.LastErr, info.Retried, info.MaxRetry, info.Timeout)
}

// What asynq's own script leaves of tasks that failed, and what ours leaves. Some are done in between.
func TestArchiveContractWithAsynq(t *testing.T) {
	t.Parallel()
	const n = 20
	ts := redistest.Tasks(n)
	var left [2]map[string]string
	for side, r := range []*redisconn.Redis{redistest.DB(t), redistest.DB(t)} {
		client := r.Client
		if side == 1 {
			client = newBroker(t, r, n, time.Millisecond)
		}
		q := queue.New(r, queue.Config{})
		redistest.Dispatch(t, q, ts...)
		var handled atomic.Int32
		serve(t, client, 1, n, func(string) error {
			if handled.Add(1)%2 == 0 {
				return nil
			}
			return fmt.Errorf("RFA_INTERNAL: it broke%w", silent{asynq.SkipRetry})
		})
		redistest.Eventually(t, func() bool {
			return r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "processed")).Val() == strconv.Itoa(n)
		})
		require.Equal(t, strconv.Itoa(n/2), r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, "failed")).Val())
		infos := redistest.Must(asynq.NewInspectorFromRedisClient(r.Client).ListArchivedTasks(redisconn.Jobs))(t)
		require.Len(t, infos, n/2)
		require.Equal(t, "RFA_INTERNAL: it broke", infos[0].LastErr)
		left[side] = keysAndValues(t, r)
	}
	// Which of the tasks failed is chance.
	require.Equal(t, keysOnly(left[0]), keysOnly(left[1]))
	for _, count := range []string{"processed", "failed"} {
		key := redisconn.QueueKey(redisconn.Jobs, count)
		require.Equal(t, left[0][key], left[1][key])
	}
}

// silent is an error without a text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// keysOnly are the names of keys and how long they live, the tasks' as one.
func keysOnly(all map[string]string) map[string]string {
	keys := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, redisconn.TaskKey(redisconn.Jobs, "")) {
			id := strings.TrimPrefix(key, redisconn.TaskKey(redisconn.Jobs, ""))
			key, value = redisconn.TaskKey(redisconn.Jobs, "*"), strings.ReplaceAll(strings.ReplaceAll(value, id, "*"), id[:36], "*")
		} else {
			value = value[strings.LastIndex(value, ","):]
		}
		keys[key] = value
	}
	return keys
}

// The archive keeps the latest, however many another consumer left there.
// Promise: patterns Dead Letter
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	archived := redisconn.QueueKey(redisconn.Jobs, "archived")
	old := redistest.Tasks(maxArchived + 600)
	for i, task := range old {
		name := queue.TaskName(task)
		require.NoError(t, r.Client.ZAdd(t.Context(), archived, redis.Z{Score: float64(1000 + i), Member: name}).Err())
		require.NoError(t, r.Client.HSet(t.Context(), redisconn.TaskKey(redisconn.Jobs, name), "state", "archived", "msg", "m").Err())
	}
	f := newFinisher(r.Client, redisconn.Jobs)
	fetcher := fetcherOf(r.Client, redistest.Within, 2, never)
	ts := redistest.Tasks(2)
	for i, task := range ts {
		redistest.Dispatch(t, queue.New(r, queue.Config{}), task)
		redistest.Must(fetcher.next(t.Context(), soon()))(t)
		failed := handledNow(task)
		failed[0].as, failed[0].value = taskFailed, "message"
		require.NoError(t, f.end(t.Context(), failed))
		require.Equal(t, []int64{1101, 1000}[i], r.Client.ZCard(t.Context(), archived).Val(), "at most 500 in one run")
	}
	require.Equal(t, "archived", redistest.JobState(t, r, ts[0]))
	require.Empty(t, redistest.JobState(t, r, old[0]), "the oldest are gone, with what was kept of them")
	require.Empty(t, redistest.JobState(t, r, old[601]))
	require.Equal(t, "archived", redistest.JobState(t, r, old[602]))
	for _, count := range []string{"processed", "failed"} {
		require.Equal(t, "2", r.Client.Get(t.Context(), redisconn.QueueKey(redisconn.Jobs, count)).Val())
	}
}

// keysAndValues is all that Redis has, but for what a server writes about itself.
// Times to live and the ends of leases are rounded to what a slow test may differ
// by; of the time since when a task is pending only that it is there counts.
func keysAndValues(t *testing.T, r *redisconn.Redis) map[string]string {
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	for _, key := range r.Client.Keys(ctx, "*").Val() {
		if strings.HasPrefix(key, "asynq:servers") || strings.HasPrefix(key, "asynq:workers") {
			continue
		}
		var values []string
		switch kind := r.Client.Type(ctx, key).Val(); kind {
		case "string":
			values = []string{r.Client.Get(ctx, key).Val()}
		case "list":
			values = r.Client.LRange(ctx, key, 0, -1).Val()
		case "set":
			values = r.Client.SMembers(ctx, key).Val()
		case "zset":
			expected := 20.
			if strings.HasSuffix(key, ":archived") {
				expected = 0
			}
			for _, z := range r.Client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				left := time.Until(time.Unix(int64(z.Score), 0))
				require.InDelta(t, expected, left.Seconds(), 15, "asynq's lease is 30 s: %v", z)
				values = append(values, fmt.Sprint(z.Member))
			}
			slices.Sort(values) // the scores are of the second in which a task was fetched
		case "hash":
			for field, value := range r.Client.HGetAll(ctx, key).Val() {
				switch {
				case field == "pending_since":
					value = "then"
				case field == "msg" && r.Client.HGet(ctx, key, "state").Val() == "archived":
					value = archivedMessage(t, r, strings.TrimPrefix(key, redisconn.TaskKey(redisconn.Jobs, "")))
				}
				values = append(values, field+"="+value)
			}
			slices.Sort(values)
		default:
			require.FailNow(t, "a key of type "+kind)
		}
		ttl := r.Client.TTL(ctx, key).Val().Round(24 * time.Hour)
		all[key] = fmt.Sprintf("%q, %v", values, ttl)
	}
	return all
}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func fetcherOf(client redis.UniversalClient, timeout time.Duration, concurrency int, every time.Duration) *fetcher {
	return newFetcher(client, Config{Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, Timeout: timeout})
}

// stops has what is to be called before the servers of a Broker are shut down.
var stops sync.Map

func newBroker(t testing.TB, r *redisconn.Redis, concurrency int, every time.Duration) *Broker {
	t.Helper()
	stopping := make(chan struct{})
	b := New(r.Client, Config{
		Queue: redisconn.Jobs, Concurrency: concurrency, CheckInterval: every, DelayedCheckInterval: 10 * time.Millisecond,
		Timeout: redistest.Within, Moved: func() {}, Stopping: stopping,
	})
	stops.Store(b, sync.OnceFunc(func() { close(stopping) }))
	b.Start()
	b.Start()
	t.Cleanup(func() {
		require.NoError(t, b.Stop(context.Background()))
		require.NoError(t, b.Stop(context.Background()))
	})
	return b
}

// serve handles tasks by asynq servers on the client, a Broker or a plain one.
func serve(t testing.TB, client redis.UniversalClient, servers, concurrency int, handle func(id string) error) {
	t.Helper()
	for range servers {
		s := asynq.NewServerFromRedisClient(client, asynq.Config{
			Concurrency: concurrency / servers, Queues: map[string]int{redisconn.Jobs: 1}, TaskCheckInterval: time.Millisecond,
			DelayedTaskCheckInterval: time.Millisecond, ShutdownTimeout: 100 * time.Millisecond,
			Logger: redisconn.NewAsynqLog(redistest.Log(t)),
		})
		require.NoError(t, s.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			run := func() error { return handle(string(task.Payload())) }
			if b, ok := client.(*Broker); ok {
				return b.Handle(ctx, run)
			}
			return run()
		})))
		t.Cleanup(s.Shutdown)
	}
	t.Cleanup(func() { // comes first
		if b, ok := client.(*Broker); ok {
			b.Quiet()
			b.Quiet()
			stop, _ := stops.Load(b)
			stop.(func())()
		}
	})
}
