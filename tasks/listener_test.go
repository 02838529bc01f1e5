package tasks

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// hearing is a listener whose calls can be waited for.
type hearing struct {
	*Listener
	news    chan job.Notification
	resumed chan job.ID
}

// hear starts a listener and waits until it hears the clients.
func hear(t *testing.T, r *Redis, clients ...job.ID) *hearing {
	t.Helper()
	h := &hearing{NewListener(r), make(chan job.Notification, 100_000), make(chan job.ID, 100_000)}
	for _, c := range clients {
		h.Watch(c)
	}
	h.Start(func(n job.Notification) { h.news <- n }, func(c job.ID) { h.resumed <- c })
	t.Cleanup(h.Stop)
	h.requireResumed(t, clients...)
	return h
}

// requireResumed waits until all these clients have been resumed.
func (h *hearing) requireResumed(t *testing.T, clients ...job.ID) {
	t.Helper()
	missing := map[job.ID]bool{}
	for _, c := range clients {
		missing[c] = true
	}
	for len(missing) > 0 {
		delete(missing, receive(t, h.resumed, "a client to be heard"))
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := startQueue(t, r, QueueConfig{})
	a, b, unwatched := newTask().JobID, newTask().JobID, newTask().JobID
	one, both := hear(t, r, a), hear(t, r, a, b)
	require.True(t, both.Connected())

	var all, ofA []job.Notification
	for i := range 1000 {
		q.Publish(job.Notification{ClientID: unwatched, JobID: newTask().JobID})
		n := job.Notification{ClientID: a, JobID: newTask().JobID}
		switch i % 4 {
		case 1:
			n.ClientID = b
		case 2:
			n.Attempt, n.Progress = i, &job.Progress{Percentage: 7, Phase: "x", UpdatedAt: time.Unix(0, 0).UTC()}
		}
		q.Publish(n)
		all = append(all, n)
		if n.ClientID == a {
			ofA = append(ofA, n)
		}
	}
	q.Publish(job.Notification{ClientID: a}) // of a batch
	all, ofA = append(all, job.Notification{ClientID: a}), append(ofA, job.Notification{ClientID: a})
	for _, want := range ofA {
		require.Equal(t, want, receive(t, one.news, "news"))
	}
	got := map[job.ID][]job.Notification{}
	for range all {
		n := receive(t, both.news, "news")
		got[n.ClientID] = append(got[n.ClientID], n)
	}
	require.Equal(t, ofA, got[a], "a client's news keep their order")
	require.Len(t, got[b], len(all)-len(ofA))

	both.Unwatch(a)
	both.Unwatch(a)
	both.Unwatch(unwatched)
	q.Publish(job.Notification{ClientID: a})
	q.Publish(job.Notification{ClientID: b})
	require.Equal(t, job.Notification{ClientID: b}, receive(t, both.news, "news"))
	require.Equal(t, job.Notification{ClientID: a}, receive(t, one.news, "news"))
	eventually(t, func() bool {
		return r.client.PubSubNumSub(t.Context(), newsChannel(a)).Val()[newsChannel(a)] == 1
	}, "unwatching ends the subscription")
}

// What comes before Redis has ended the subscription is dropped.
func TestUnwatchedIsNotHeard(t *testing.T) {
	t.Parallel()
	l := NewListener(newDB(t))
	var news []job.Notification
	var resumed []job.ID
	l.received = func(n job.Notification) { news = append(news, n) }
	l.resumed = func(c job.ID) { resumed = append(resumed, c) }
	l.Watch(anna)
	l.Watch(bert)
	l.Unwatch(bert)
	for _, c := range []job.ID{anna, bert} {
		l.handle(&redis.Subscription{Kind: "subscribe", Channel: newsChannel(c)})
		l.handle(&redis.Subscription{Kind: "unsubscribe", Channel: newsChannel(c)})
		l.handle(&redis.Message{Channel: newsChannel(c), Payload: "-\n"})
	}
	require.Equal(t, []job.ID{anna}, resumed)
	require.Equal(t, []job.Notification{{ClientID: anna}}, news)
}

// Whoever watches anew is told from when on news are heard, even when the
// subscription did not end in between.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	c := newTask().JobID
	h := hear(t, r, c)
	for range 100 {
		h.Unwatch(c)
		h.Watch(c)
		h.requireResumed(t, c)
	}
	h.Watch(c)
	q := startQueue(t, r, QueueConfig{})
	q.Publish(job.Notification{ClientID: c})
	require.Equal(t, job.Notification{ClientID: c}, receive(t, h.news, "news"))
}

func TestListenerSkipsGarbage(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	c := newTask().JobID
	h := hear(t, r, c)
	for _, message := range []string{"", "\n", "x\n" + first.String() + "\ny", "-\n"} {
		require.NoError(t, r.client.Publish(t.Context(), newsChannel(c), message).Err())
	}
	require.Equal(t, job.Notification{ClientID: c, JobID: first}, receive(t, h.news, "news"))
	require.Equal(t, job.Notification{ClientID: c}, receive(t, h.news, "news"))
	require.Equal(t, 4., newsOf(r, resultBad))
	require.Equal(t, 2., newsOf(r, resultReceived))
}

func TestListenerAfterTrouble(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault, heal func(*testing.T, *devstack.Redis)
	}{
		"kill": {
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Kill()) },
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"stop": {
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Stop()) },
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Start(t.Context())) },
		},
		"hang": {
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Pause()) },
			func(t *testing.T, s *devstack.Redis) { require.NoError(t, s.Resume()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			r := connectHanging(t, server.URL())
			q := startQueue(t, r, QueueConfig{})
			a, b, late, dropped := newTask().JobID, newTask().JobID, newTask().JobID, newTask().JobID
			h := hear(t, r, a, b, dropped)
			test.fault(t, server)
			eventually(t, func() bool { return !h.Connected() })
			h.Watch(late)
			h.Unwatch(dropped)
			test.heal(t, server)
			h.requireResumed(t, a, b, late)
			require.True(t, h.Connected())
			eventually(t, func() bool {
				q.Publish(job.Notification{ClientID: dropped})
				q.Publish(job.Notification{ClientID: b})
				return len(h.news) > 0
			})
			require.Equal(t, job.Notification{ClientID: b}, receive(t, h.news, "news"))
			require.Positive(t, value(r.metrics.errors.WithLabelValues("listen")))
		})
	}
}

// A connection that is broken while Redis is well is made anew.
func TestListenerIsCutOff(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	c := newTask().JobID
	h := hear(t, r, c)
	require.NoError(t, r.client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	h.requireResumed(t, c)
	startQueue(t, r, QueueConfig{}).Publish(job.Notification{ClientID: c})
	require.Equal(t, job.Notification{ClientID: c}, receive(t, h.news, "news"))
}

func TestListenerAfterAFlush(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q := startQueue(t, r, QueueConfig{})
	c := newTask().JobID
	h := hear(t, r, c)
	require.NoError(t, r.client.FlushAll(t.Context()).Err())
	q.Publish(job.Notification{ClientID: c})
	require.Equal(t, job.Notification{ClientID: c}, receive(t, h.news, "news"))
	require.Empty(t, h.resumed)
}

func TestListenerOfManyClients(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connect(t, server.URL())
	q := startQueue(t, r, QueueConfig{})
	var clients []job.ID
	for range 5000 {
		clients = append(clients, newTask().JobID)
	}
	h := hear(t, r, clients...)
	for _, c := range clients {
		q.Publish(job.Notification{ClientID: c})
	}
	for _, c := range clients {
		require.Equal(t, c, receive(t, h.news, "news").ClientID)
	}
	require.Len(t, r.client.PubSubChannels(t.Context(), newsPrefix+"*").Val(), len(clients))
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
	h.requireResumed(t, clients...)
	for _, c := range clients {
		h.Unwatch(c)
	}
	eventually(t, func() bool { return len(r.client.PubSubChannels(t.Context(), newsPrefix+"*").Val()) == 0 })
}

func TestListenerStop(t *testing.T) {
	t.Parallel()
	server := ownRedis(t)
	r := connectHanging(t, server.URL())
	never := func() *hearing { return &hearing{Listener: NewListener(r)} }

	before := never()
	before.Watch(anna)
	before.Stop()
	before.Start(nil, nil)
	before.Stop()
	require.False(t, before.Connected())

	c := newTask().JobID
	h := hear(t, r, c)
	h.Start(nil, nil)
	h.Stop()
	h.Stop()
	require.False(t, h.Connected())
	h.Watch(newTask().JobID)
	h.Unwatch(c)

	for _, fault := range []func() error{server.Pause, server.Kill} {
		late := hear(t, r, c)
		require.NoError(t, fault())
		eventually(t, func() bool { return !late.Connected() })
		began := time.Now()
		late.Stop()
		require.Less(t, time.Since(began), within/2)
		if server.PID() != 0 {
			require.NoError(t, server.Resume())
		}
	}
}
