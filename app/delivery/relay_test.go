package delivery

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (w *world) insert(n int, endpoint job.ID, given repotest.Columns) {
	columns := repotest.Columns{
		"client_id": quoted(apptest.ClientA), "endpoint_id": quoted(endpoint), "webhook_id": quoted(endpoint), "url": "NULL",
	}
	for name, value := range given {
		columns[name] = value
	}
	repotest.Insert(w.T, w.url, "deliveries", n, columns)
}

func quoted(id job.ID) string { return `'` + id.String() + `'` }

func TestDeliveriesOfDisabledWebhooksAreGivenUp(t *testing.T) {
	w := newWorld(t, nil)
	hook := w.webhook(apptest.ClientA)
	w.insert(orphanBatch+1, hook, nil)
	require.NoError(t, w.store.DeleteWebhook(t.Context(), apptest.ClientA, hook))
	led := 0
	require.NoError(t, w.relay.FailOrphans(t.Context(), func() bool { led++; return led <= 1 }))
	require.Equal(t, orphanBatch, w.count("deliveries WHERE state = 'FAILED'"), "a round without leadership ends after one statement")
	require.NoError(t, w.relay.FailOrphans(t.Context(), always))
	require.Equal(t, float64(orphanBatch+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("orphaned")))
	require.Len(t, w.queue.Removed, orphanBatch+1, "their tasks are removed")
}

func TestClaimsOfDeadWorkersEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.insert(reclaimBatch+1, w.webhook(apptest.ClientA), repotest.Columns{"claimed_until": "now() - interval '1 s'"})
	require.NoError(t, w.relay.Round(t.Context(), always))
	require.Zero(t, w.count("deliveries WHERE claimed_until IS NOT NULL"))
	require.Equal(t, float64(reclaimBatch+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("reclaimed")))
}

func TestRelayMakesLostTasks(t *testing.T) {
	w := newWorld(t, nil)
	const before = "now() - interval '1 h'"
	w.insert(mostDue, w.webhook(apptest.ClientA), repotest.Columns{"created_at": before, "next_attempt_at": before})
	retries := w.webhook(apptest.ClientA)
	for _, wait := range []string{"1 s", "1 h"} {
		w.insert(1, retries, repotest.Columns{"attempts": "1", "next_attempt_at": "now() + interval '" + wait + "'"})
	}
	round := func(want error, tasks int) {
		t.Helper()
		require.ErrorIs(t, w.relay.Round(t.Context(), always), want)
		require.Equal(t, tasks, w.queue.Waiting())
	}
	round(nil, mostDue+1)
	require.Equal(t, float64(mostDue+1), w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues("enqueued")))
	w.queue.Flush()
	w.relay.next = w.relay.next.Add(-restAtMost)
	cursor := job.EndpointKey{Client: job.ID{1}}
	w.relay.cursor = cursor
	w.queue.Change(func() { w.queue.Err = apptest.ErrQueue })
	round(apptest.ErrQueue, 0)
	require.Equal(t, cursor, w.relay.cursor, "the cursor stays if the queue fails")
	w.queue.Change(func() { w.queue.Err = nil })
	round(nil, mostDue+1)
}

func TestSubscribersAreRead(t *testing.T) {
	w := newWorld(t, nil)
	s := NewSubscribers(w.store, w.Logger)
	hook := w.webhook(apptest.ClientA)
	require.NoError(t, s.read(t.Context()))
	require.Equal(t, 1, s.Webhooks(apptest.ClientA))
	added := job.EndpointKey{Client: apptest.ClientB, Endpoint: app.NewID()}
	s.Add(added)
	s.Add(added) // the webhook was enabled again
	require.Equal(t, 1, s.Webhooks(apptest.ClientB))
	s.replace(nil)
	require.Equal(t, []int{0, 1}, []int{s.Webhooks(apptest.ClientA), s.Webhooks(apptest.ClientB)}, "webhooks added during a read are kept")
	require.NoError(t, s.read(t.Context()))
	require.Equal(t, []int{1, 0}, []int{s.Webhooks(apptest.ClientA), s.Webhooks(apptest.ClientB)})
	require.NoError(t, w.store.DeleteWebhook(t.Context(), apptest.ClientA, hook))
	require.Error(t, s.read(ended()))
	require.Equal(t, 1, s.Webhooks(apptest.ClientA))
	require.NoError(t, s.read(t.Context()))
	require.Zero(t, s.Webhooks(apptest.ClientA))
}

func TestNewDeliveriesHaveTheirTasks(t *testing.T) {
	w := newWorld(t, nil)
	s := NewSubscribers(w.store, w.Logger)
	n := NewNotifier(w.queue, s, w.store, w.Logger)
	hook, foreign := w.webhook(apptest.ClientA, job.EventCreated), w.webhook(apptest.ClientB, job.EventCreated)
	s.Add(job.EndpointKey{Client: apptest.ClientA, Endpoint: hook})
	written := func(client job.ID) job.Notification {
		id, _ := w.ofJob(func(j *job.Job) { j.ClientID = client })
		return job.Notification{ClientID: client, JobID: id}
	}
	a, b, c := written(apptest.ClientA), written(apptest.ClientB), written(apptest.ClientB)
	n.Publish(a)
	n.Publish(b)
	n.Deliver(c.ClientID, c.JobID)
	require.NoError(t, n.feed(t.Context()))
	require.Equal(t, []job.Notification{a, b}, w.queue.Notifications())
	require.Equal(t, 2, w.queue.Waiting(), "a client without known webhooks is left to the relay")
	w.queue.Flush()
	progress := a
	progress.Progress = &job.Progress{Percentage: 1}
	n.Publish(progress)
	jobs, clients := n.gather()
	require.Empty(t, slices.Concat(jobs, clients), "progress is not delivered")
	for range 100 {
		n.Publish(a)
	}
	jobs, _ = n.gather()
	require.Equal(t, []job.ID{a.JobID}, jobs, "repeated notifications are merged")
	n.Publish(a)
	n.Deliver(apptest.ClientB, job.ID{})
	w.deliveries(1, apptest.ClientB, foreign)
	require.NoError(t, n.feed(t.Context()))
	require.Equal(t, 1, w.queue.Waiting(), "only the client's event is new")
	n.Publish(written(apptest.ClientA))
	require.Error(t, n.feed(ended()), "a failed read is left to the relay")
	require.NoError(t, n.feed(t.Context()))
	require.Equal(t, 1, w.queue.Waiting())
}
