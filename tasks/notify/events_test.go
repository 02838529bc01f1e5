package notify

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

type hearing struct {
	*Events
	events  chan job.Notification
	resumed chan job.ID
}

func hear(t *testing.T, r *redisconn.Redis, clients ...job.ID) *hearing {
	t.Helper()
	h := &hearing{NewEvents(r), make(chan job.Notification, 100_000), make(chan job.ID, 100_000)}
	for _, c := range clients {
		h.Watch(c)
	}
	h.Start(func(n job.Notification) { h.events <- n }, func(c job.ID) { h.resumed <- c })
	t.Cleanup(func() { _ = h.Stop(context.Background()) })
	h.requireResumed(t, clients...)
	return h
}

func (h *hearing) requireResumed(t *testing.T, clients ...job.ID) {
	t.Helper()
	missing := map[job.ID]bool{}
	for _, c := range clients {
		missing[c] = true
	}
	for len(missing) > 0 {
		delete(missing, redistest.Receive(t, h.resumed, "a client to be heard"))
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	p := startPublisher(t, r)
	a, b, unwatched := redistest.Task().JobID, redistest.Task().JobID, redistest.Task().JobID
	one, both := hear(t, r, a), hear(t, r, a, b)
	require.True(t, both.Connected())

	var ofA []job.Notification
	for i := range 1000 {
		n := job.Notification{ClientID: a, JobID: redistest.Task().JobID}
		if i%2 == 1 {
			n.Attempt, n.Progress = i, &job.Progress{Percentage: 7, Phase: "x", UpdatedAt: job.Time(time.Unix(0, 0).UTC())}
		}
		p.Publish(job.Notification{ClientID: unwatched, JobID: n.JobID})
		p.Publish(n)
		p.Publish(job.Notification{ClientID: b, JobID: n.JobID})
		ofA = append(ofA, n)
	}
	ofA = append(ofA, job.Notification{ClientID: a}) // for an event without a job
	p.Publish(ofA[1000])
	got := map[job.ID][]job.Notification{}
	for _, want := range ofA {
		require.Equal(t, want, redistest.Receive(t, one.events, "a notification"))
	}
	for range 2001 {
		n := redistest.Receive(t, both.events, "a notification")
		got[n.ClientID] = append(got[n.ClientID], n)
	}
	require.Equal(t, ofA, got[a], "a client's notifications keep their order")
	require.Len(t, got[b], 1000)

	both.Unwatch(a)
	both.Unwatch(a)
	both.Unwatch(unwatched)
	p.Publish(job.Notification{ClientID: a})
	p.Publish(job.Notification{ClientID: b})
	require.Equal(t, job.Notification{ClientID: b}, redistest.Receive(t, both.events, "a notification"))
	require.Equal(t, job.Notification{ClientID: a}, redistest.Receive(t, one.events, "a notification"))
	redistest.Eventually(t, func() bool {
		return r.Client.PubSubNumSub(t.Context(), eventChannel(a)).Val()[eventChannel(a)] == 1
	}, "unwatching ends the subscription")
}

func TestEventsSkipGarbage(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	c := redistest.Task().JobID
	h := hear(t, r, c)
	good, id := `{"job":"`+first.String()+`","event":true}`, `{"job":"`+first.String()+`"`
	bad := []string{
		"", " ", "x", "null", "{}", "[]", id + "}", id, id + `,"event":1}`, id + `,"progress":{}}`, id + `,"attempt":0,"progress":{}}`,
		id + `,"attempt":-1,"progress":{}}`, id + `,"attempt":1,"progress":[]}`, id + `,"attempt":1,"progress":{"percentage":101}}`,
		id + `,"attempt":1,"progress":{"items_total":-1}}`, `{"attempt":1,"progress":{}}`, `{"job":"x","event":true}`, good + good,
	}
	require.NoError(t, r.Client.Publish(t.Context(), eventChannel(c), strings.Join(append(bad, good), "\n")).Err())
	require.NoError(t, r.Client.Publish(t.Context(), eventChannel(c), `{"event":true}`).Err())
	require.Equal(t, job.Notification{ClientID: c, JobID: first}, redistest.Receive(t, h.events, "a notification"))
	require.Equal(t, job.Notification{ClientID: c}, redistest.Receive(t, h.events, "a notification"))
	require.Equal(t, float64(len(bad)), notificationsOf(r, redisconn.ResultBad))
	require.Equal(t, 2., notificationsOf(r, redisconn.ResultReceived))
}

func TestEventsAfterTrouble(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	p := startPublisher(t, r)
	for _, trouble := range []struct{ begin, end func() error }{
		{server.Kill, func() error { return server.Start(t.Context()) }}, {server.Pause, server.Resume},
	} {
		a, b, late, dropped := redistest.Task().JobID, redistest.Task().JobID, redistest.Task().JobID, redistest.Task().JobID
		many := redistest.IDs(2*maxChannels + 1)
		h := hear(t, r, append(many, a, b, dropped)...)
		require.NoError(t, trouble.begin())
		redistest.Eventually(t, func() bool { return !h.Connected() })
		h.Watch(late)
		h.Unwatch(dropped)
		require.NoError(t, trouble.end())
		h.requireResumed(t, append(many, a, b, late)...)
		require.True(t, h.Connected())
		redistest.Eventually(t, func() bool {
			p.Publish(job.Notification{ClientID: dropped})
			p.Publish(job.Notification{ClientID: b})
			return len(h.events) > 0
		})
		require.Equal(t, job.Notification{ClientID: b}, redistest.Receive(t, h.events, "a notification"))
		require.Positive(t, testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("listen")))
	}
}

func TestEventsStop(t *testing.T) {
	t.Parallel()
	server := redistest.Own(t)
	r := redistest.ConnectHanging(t, server.URL())
	before := NewEvents(r)
	before.Watch(anna)
	require.NoError(t, before.Stop(t.Context()))
	before.Start(nil, nil)
	require.NoError(t, before.Stop(t.Context()))
	require.False(t, before.Connected())

	c := redistest.Task().JobID
	h := hear(t, r, c)
	h.Start(nil, nil)
	require.NoError(t, h.Stop(t.Context()))
	require.False(t, h.Connected())

	for _, fault := range []func() error{server.Pause, server.Kill} {
		late := hear(t, r, c)
		require.NoError(t, fault())
		redistest.Eventually(t, func() bool { return !late.Connected() })
		require.NoError(t, late.Stop(t.Context()))
		if server.PID() != 0 {
			require.NoError(t, server.Resume())
		}
	}
}
