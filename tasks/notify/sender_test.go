package notify

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

const rest10 = 10 * time.Millisecond

type log struct {
	mu    sync.Mutex
	sent  [][]int
	began time.Time
	at    []time.Duration
	err   error
}

func (l *log) send(_ context.Context, items []int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent, l.at = append(l.sent, slices.Clone(items)), append(l.at, time.Since(l.began))
	return l.err
}

func (l *log) config() SenderConfig[int] {
	circuit := redisconn.NewCircuit("testing", slog.New(slog.DiscardHandler), nil)
	return SenderConfig[int]{Buffer: 10, Batch: 4, Send: l.send, Circuit: circuit}
}

func TestSenderPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := log{began: time.Now()}
		cfg := l.config()
		cfg.Pause = rest10
		s := NewSender(cfg)
		for i := range 9 {
			s.Add(i)
		}
		s.Start()
		synctest.Wait()
		require.Equal(t, [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}}, l.sent)
		s.Add(9)
		time.Sleep(rest10)
		synctest.Wait()
		require.Equal(t, []int{8, 9}, l.sent[2])
		require.Equal(t, []time.Duration{0, 0, rest10}, l.at)
		require.NoError(t, s.Stop(t.Context()))
	})
}

func TestSenderSkipsAndDrops(t *testing.T) {
	t.Parallel()
	l := log{err: errors.New("no Redis")}
	cfg := l.config()
	cfg.Results = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"result"})
	s := NewSender(cfg)
	for i := range 10 {
		s.Add(i)
	}
	s.Start()
	require.NoError(t, s.Stop(t.Context()))
	require.Len(t, l.sent, 1)
	require.Equal(t, 6., testutil.ToFloat64(cfg.Results.WithLabelValues(redisconn.ResultSkipped)))

	release := make(chan struct{})
	cfg.Circuit = l.config().Circuit
	cfg.Send = func(context.Context, []int) error { <-release; return nil }
	s = NewSender(cfg)
	for i := range 10 {
		s.Add(i)
	}
	s.Start()
	ctx, cancel := context.WithTimeout(t.Context(), rest10)
	defer cancel()
	require.ErrorIs(t, s.Stop(ctx), context.DeadlineExceeded)
	close(release)
	s.running.Wait()
	require.GreaterOrEqual(t, testutil.ToFloat64(cfg.Results.WithLabelValues(redisconn.ResultDropped)), 6.)
}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func notificationsOf(r *redisconn.Redis, result string) float64 {
	return testutil.ToFloat64(r.Metrics.Notifications.WithLabelValues(result))
}

func startPublisher(t testing.TB, r *redisconn.Redis) *Publisher {
	return redistest.Start(t, NewPublisher(r, time.Hour))
}

// A Redis without room for more data still forwards notifications.
func TestNotificationsWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	r := redistest.Connect(t, redistest.Own(t).URL())
	p := startPublisher(t, r)
	client := redistest.Task().JobID
	h := hear(t, r, client)
	require.NoError(t, r.Client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	n := progressOf(1, 10)
	n.ClientID = client
	p.Publish(n)
	require.Equal(t, n, redistest.Receive(t, h.events, "progress"))
	redistest.Eventually(t, func() bool { return notificationsOf(r, redisconn.ResultOK) == 1 })
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("progress")))
	require.Nil(t, p.Progress(t.Context(), first, 1))
	require.False(t, p.events.Circuit.IsOpen())
}
