package batch

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
	"github.com/stretchr/testify/require"
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

func TestSupports(t *testing.T) {
	t.Parallel()
	require.True(t, Supported(), "a test lists no modules")
	asynq := func(version string, replace *debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Deps: []*debug.Module{{Path: "x"}, {Path: "github.com/hibiken/asynq", Version: version, Replace: replace}}}
	}
	require.True(t, supports(asynq(asynqVersion, nil)))
	require.False(t, supports(asynq(asynqVersion+"1", nil)))
	require.False(t, supports(asynq(asynqVersion, &debug.Module{Path: "y"})))
	require.False(t, supports(&debug.BuildInfo{Deps: []*debug.Module{{Path: "x"}}}))
	file, err := os.ReadFile("../../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(file), "github.com/hibiken/asynq "+asynqVersion+"\n", "look at its scripts, then change the constant")
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
			dispatchAll(t, q, task) // in this order
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
		dispatchAll(t, q, ts[0])
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
			for _, z := range r.Client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				left := time.Until(time.Unix(int64(z.Score), 0))
				require.InDelta(t, 20, left.Seconds(), 15, "asynq's lease is 30 s: %v", z)
				values = append(values, fmt.Sprint(z.Member))
			}
			slices.Sort(values) // the scores are of the second in which a task was fetched
		case "hash":
			for field, value := range r.Client.HGetAll(ctx, key).Val() {
				if field == "pending_since" {
					value = "then"
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
