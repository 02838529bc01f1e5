package tasks_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/consumer"
	"github.com/forgerun/forgerun/tasks/notify"
	"github.com/forgerun/forgerun/tasks/queue"
	"github.com/forgerun/forgerun/tasks/ratelimit"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func requireAllWorks(t *testing.T, url string) {
	t.Helper()
	ctx := t.Context()
	r := redistest.Connect(t, url)
	q := redistest.Start(t, queue.New(r, queue.Config{}))
	redistest.Eventually(t, func() bool { return r.Ping(ctx) == nil })
	ts, deliveries := redistest.Tasks(300), redistest.Deliveries(100)
	redistest.Ensure(t, q, ts[:299]...)
	require.Equal(t, 99, redistest.Must(q.EnsureDeliveries(ctx, deliveries[:99]))(t))
	q.Enqueue(ts[299])
	q.EnqueueDelivery(deliveries[99])
	redistest.Eventually(t, func() bool { return redistest.Info(t, r, redisconn.Jobs).Pending == len(ts) })
	require.Zero(t, redistest.Must(q.Ensure(ctx, ts))(t), "no task is missing")
	require.NoError(t, q.Mend(ctx))
	handled, canceled, delivered := make(chan job.Task, 1000), make(chan job.ID, 10_000), make(chan job.DeliveryTask, 1000)
	for _, c := range []*consumer.Consumer{
		consumer.NewJobs(r, consumer.Config{Concurrency: 4}, handInto(handled), func(id job.ID) { canceled <- id }),
		consumer.NewDeliveries(r, consumer.Config{Concurrency: 4}, handInto(delivered)),
	} {
		require.NoError(t, c.Start(ctx))
		t.Cleanup(func() { _ = c.Stop(context.Background()) })
	}
	requireEach(t, ts, handled)
	requireEach(t, deliveries, delivered)
	for _, name := range redisconn.Queues {
		redistest.Eventually(t, func() bool { return redistest.Info(t, r, name).Size == 0 }, "nothing is left in ", name)
	}
	redistest.Eventually(t, func() bool { // repeated, because signals sent before the subscription are lost
		q.SignalCancel(ts[0].JobID)
		return len(canceled) > 0
	})
	require.Equal(t, ts[0].JobID, <-canceled)
	clients := redistest.IDs(20)
	h, resumed := make(chan job.Notification, 1000), make(chan job.ID, 1000)
	e := notify.NewEvents(r)
	for _, client := range clients {
		e.Watch(client)
	}
	e.Start(func(n job.Notification) { h <- n }, func(client job.ID) { resumed <- client })
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	requireEach(t, clients, resumed)
	want := job.Progress{Percentage: 40}
	for _, client := range clients {
		q.Publish(job.Notification{ClientID: client, JobID: client, Attempt: 1, Progress: &want})
	}
	for _, client := range clients {
		redistest.Receive(t, h, "a notification")
		redistest.Eventually(t, func() bool {
			p := q.Progress(ctx, client, 1)
			return p != nil && *p == want
		})
	}
	entries := []job.StreamEntry{{Key: "a", ContentType: "b", Value: []byte("c")}, {Key: "d", ContentType: "e", Value: []byte{0}}}
	before, last, err := q.AppendOutcomes(ctx, "outcomes", 1000, entries)
	require.NoError(t, err)
	require.Empty(t, before)
	require.Equal(t, last, redistest.Must(q.LastOutcome(ctx, "outcomes"))(t))
	now := time.Now()
	l := ratelimit.New(r, ratelimit.Config{PerMinute: 50, Wait: redistest.Within, Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
	passed := 0
	for l.Allow(ctx, clients[0]).OK {
		passed++
	}
	require.Equal(t, 50, passed)
	require.Zero(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("work")))
}

func handInto[T any](ch chan<- T) func(context.Context, T) error {
	return func(_ context.Context, task T) error {
		ch <- task
		return nil
	}
}

func requireEach[T any](t *testing.T, ts []T, came <-chan T) {
	t.Helper()
	var got []T
	for range ts {
		got = append(got, redistest.Receive(t, came, "a task"))
	}
	require.ElementsMatch(t, ts, got)
	require.Empty(t, came)
}

func TestUnixSocketWithPassword(t *testing.T) {
	t.Parallel()
	server, data := startRedis(t, map[string]string{"unixsocket": "redis.sock", "unixsocketperm": "777"})
	open := redistest.Connect(t, server.URL())
	require.NoError(t, open.Client.Do(t.Context(), "ACL", "SETUSER", "anna", "on", ">ge/heim", "~*", "&*", "+@all").Err())
	requireAllWorks(t, "unix://anna:ge%2Fheim@"+filepath.Join(data, "redis.sock")+"?db=3")
	wrong := redistest.Connect(t, "unix://anna:x@"+filepath.Join(data, "redis.sock"))
	require.ErrorContains(t, wrong.Ping(t.Context()), "WRONGPASS")
}

// The second node serves only the slot of the job queue.
func startCluster(t *testing.T) (url string, first *redisconn.Redis, second *stack.Redis) {
	t.Helper()
	settings := map[string]string{"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
	one, _ := startRedis(t, settings)
	second, _ = startRedis(t, settings)
	nodes := []*redisconn.Redis{redistest.Connect(t, one.URL()), redistest.Connect(t, second.URL())}
	of := int(nodes[0].Client.ClusterKeySlot(t.Context(), "{jobs}").Val())
	require.NoError(t, nodes[0].Client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, of-1, of+1, 16383).Err())
	require.NoError(t, nodes[1].Client.Do(t.Context(), "CLUSTER", "ADDSLOTS", of).Err())
	require.NoError(t, nodes[0].Client.ClusterMeet(t.Context(), "127.0.0.1", fmt.Sprint(second.Port())).Err())
	for _, node := range nodes {
		redistest.Eventually(t, func() bool {
			info := node.Client.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	return fmt.Sprintf("redis-cluster://127.0.0.1:%d,127.0.0.1:%d", one.Port(), second.Port()), nodes[0], second
}

func TestCluster(t *testing.T) {
	t.Parallel()
	url, first, holder := startCluster(t)
	requireAllWorks(t, url)
	masters := inspect(t, url).Servers
	require.Len(t, masters, 2)
	require.Equal(t, []string{"1", "1"}, []string{masters[0].AppendOnly, masters[1].AppendOnly})

	// A queue is not ready if the node with its slot is down, even if the other nodes respond.
	r := redistest.Connect(t, url)
	jobs, webhooks := queue.New(r, queue.Config{}), queue.New(r, queue.Config{})
	redistest.Eventually(t, func() bool { return jobs.Ready(t.Context(), redisconn.Jobs) == nil })
	require.NoError(t, holder.Kill())
	redistest.Eventually(t, func() bool { return jobs.Ready(t.Context(), redisconn.Jobs) != nil })
	require.NoError(t, webhooks.Ready(t.Context(), redisconn.Webhooks))
	require.NoError(t, first.Ping(t.Context()), "the other server responds")
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	requireAllWorks(t, "redis-sentinel://"+startSentinel(t, server.Port())+"?master=main")
}

// Promise: draft 5.2, 6.6
func TestTLS(t *testing.T) {
	t.Parallel()
	address := tlsProxy(t, fmt.Sprint("127.0.0.1:", redistest.Own(t).Port()))
	requireAllWorks(t, "rediss://"+address+"/2?skip_verify=true")
	strict := redistest.Connect(t, "rediss://"+address)
	require.ErrorContains(t, strict.Ping(t.Context()), "certificate")
}

// asynq waits without a limit for the answer to its first SUBSCRIBE.
func TestWorkersStopWhileASubscriptionHangs(t *testing.T) {
	t.Parallel()
	subscribed := make(chan struct{}, 100)
	url := proxy(t, redistest.Own(t).Port(), func(sent []byte) bool {
		if !bytes.Contains(sent, []byte("subscribe")) {
			return true
		}
		subscribed <- struct{}{}
		return false
	})
	c := consumer.NewJobs(redistest.ConnectHanging(t, url), consumer.Config{ShutdownTimeout: 50 * time.Millisecond},
		func(context.Context, job.Task) error { return nil }, func(job.ID) {})
	require.NoError(t, c.Start(t.Context()))
	redistest.Receive(t, subscribed, "our subscription or asynq's")
	redistest.Receive(t, subscribed, "the other one")
	ctx, cancel := context.WithTimeout(t.Context(), redistest.Within)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}
