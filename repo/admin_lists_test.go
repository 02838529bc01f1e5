package repo_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

func allPages[T any](f *fixture, r admin.Range, read func(context.Context, admin.Range) (admin.Page[T], error)) []T {
	all, _ := walk(f, func(after job.ID) ([]T, job.ID) {
		r.After, r.Limit = after, 2
		page := must(read(f.ctx(), r))(f.t)
		require.LessOrEqual(f.t, len(page.Data), 2)
		return page.Data, page.Next
	})
	return all
}

func TestAdminWorkersAndQueues(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	others := []job.ID{f.newWorker(), f.newWorker()}
	f.expireWorker(others[0])
	held := []job.ID{f.at(job.Running), f.at(job.Assigned)}
	workers := allPages(f, admin.Range{}, a.Workers)
	require.Equal(t, []job.ID{others[1], others[0], f.worker}, each(workers, func(w admin.Worker) job.ID { return w.WorkerID }))
	mine := workers[2]
	require.Equal(t, []any{"ALIVE", 1, 2}, []any{mine.State, mine.Slots, mine.Held})
	require.ElementsMatch(t, held, []job.ID{mine.Jobs[0].JobID, mine.Jobs[1].JobID})
	dead := must(a.Workers(f.ctx(), admin.Range{State: "DEAD", Limit: 2}))(t)
	require.Empty(t, dead.Data, "a worker with an ended lease is not marked dead yet")

	f.submitted(3)
	f.submit(deferred(time.Hour))
	client, _ := f.another()
	queues := must(a.Queues(f.ctx(), admin.Range{}))(t)
	require.False(t, queues.More)
	require.Equal(t, [][]any{{f.client, job.SuccessFast, 3, 1}, {client, job.SuccessFast, 1, 0}}, each(queues.Data, func(q admin.Queue) []any {
		return []any{q.ClientID, q.WorkKind, q.Queued, q.Scheduled}
	}))
	require.NotNil(t, queues.Data[0].OldestRunAt)
	require.Empty(t, must(a.Queues(f.ctx(), admin.Range{ClientID: client, WorkKind: job.CPUBurst}))(t).Data)
}

func TestAdminFailures(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	f.at(job.Failed)
	f.at(job.Failed)
	last := f.at(job.Failed)
	f.at(job.Succeeded)
	f.age(f.at(job.Failed), 48*time.Hour)
	groups := must(a.Failures(f.ctx(), admin.Range{}))(t)
	require.False(t, groups.More)
	require.Len(t, groups.Data, 1)
	g := groups.Data[0]
	require.Equal(t, []any{3, last, job.SuccessFast}, []any{g.Count, g.LastJobID, g.WorkKind}, "failures of the last 24 hours")
	require.True(t, time.Time(g.FirstAt).Before(time.Time(g.LastAt)))
	from := time.Now().Add(-72 * time.Hour)
	require.Equal(t, 4, must(a.Failures(f.ctx(), admin.Range{From: &from, Code: g.Code}))(t).Data[0].Count)
	require.Empty(t, must(a.Failures(f.ctx(), admin.Range{ClientID: newID()}))(t).Data)

	f.failed(job.FailedOnce, attempts(1))
	again := must(a.Failures(f.ctx(), admin.Range{}))(t).Data[0]
	require.Equal(t, []int{4, 3}, []int{again.Count, again.Retryable}, "one job has no attempt left")
}

func TestAdminFind(t *testing.T) {
	f := setup(t)
	a, id := f.store.Admin(), f.submit()
	require.Equal(t, []admin.Found{{Type: "jobs", ID: id, ClientID: &f.client}}, must(a.Find(f.ctx(), id))(t))
	client := f.newClient().ID
	require.Equal(t, []admin.Found{{Type: "clients", ID: client, ClientID: &client}}, must(a.Find(f.ctx(), client))(t))
	b := f.bulk(job.BulkCancel, everything, ofOperator)
	require.Equal(t, []admin.Found{{Type: "bulk", ID: b.ID}}, must(a.Find(f.ctx(), b.ID))(t))
	require.Empty(t, must(a.Find(f.ctx(), newID()))(t))
}

func TestAdminClients(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	var ids []job.ID
	for range 6 {
		ids = append(ids, f.newClient().ID)
	}
	c := ids[5]
	key := f.addKey(c, "key-1")
	f.submit(ofClient(c))
	f.assigned(f.submit(ofClient(c)), 1)
	clients := allPages(f, admin.Range{}, a.Clients)
	require.ElementsMatch(t, ids, each(clients, func(c admin.Client) job.ID { return c.ClientID }))
	one := must(a.Client(f.ctx(), c))(t)
	require.Equal(t, []int{1, 2, 0}, []int{*one.ActiveJobs.Used, *one.OpenJobs.Used, *one.Webhooks.Used})
	require.Len(t, one.Keys, 1)
	require.Equal(t, key.ID, one.Keys[0].KeyID)
	require.NotContains(t, string(must(json.Marshal(one))(t)), "hash")
	require.Equal(t, job.CodeClientNotFound, codeOf(a.Client(f.ctx(), newID())))
}

func TestAdminWebhooksAndDeliveries(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	first, second, gone := f.subscribe("*"), f.subscribe("job.failed"), f.subscribe("job.failed")
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, gone))
	no := false
	f.patch(second, job.WebhookPatch{Enabled: &no})
	hooks := func(r admin.Range) []job.ID {
		return each(allPages(f, r, a.Webhooks), func(w admin.Webhook) job.ID { return w.WebhookID })
	}
	require.Equal(t, []job.ID{second, first}, hooks(admin.Range{}))
	require.Equal(t, []job.ID{second, first}, hooks(admin.Range{ClientID: f.client}))
	require.Equal(t, []job.ID{second}, hooks(admin.Range{Enabled: &no}))
	require.Empty(t, hooks(admin.Range{ClientID: newID()}))
	shown := string(must(json.Marshal(must(a.Webhook(f.ctx(), second))(t)))(t))
	require.Contains(t, shown, `"disabled_reason":{"code":"OWNER","detail":"The webhook was disabled by its owner."}`)
	require.NotContains(t, shown, "secret")
	require.Equal(t, job.CodeWebhookNotFound, codeOf(a.Webhook(f.ctx(), gone)))

	id := f.submit()
	f.another()
	deliveries := func(r admin.Range) []admin.Delivery { return allPages(f, r, a.Deliveries) }
	require.Len(t, deliveries(admin.Range{}), 2, "job.created and job.queued")
	require.Len(t, deliveries(admin.Range{WebhookID: first}), 2)
	require.Len(t, deliveries(admin.Range{JobID: id, State: "PENDING", EventName: "job.queued"}), 1)
	require.Empty(t, deliveries(admin.Range{ClientID: newID()}))
	f.deliverAll()
	sent := deliveries(admin.Range{JobID: id, ClientID: f.client})
	require.Len(t, sent, 2)
	of := sent[0].DeliveryID
	d := must(a.Delivery(f.ctx(), of))(t)
	require.Equal(t, job.DeliveryDelivered, d.State)
	require.Len(t, d.AttemptsLog, 1)
	f.exec(`UPDATE delivery_attempts SET response_header = '{"X-A": ["1"]}', response_body = 'an <answer>', error = 'HTTP_5XX', status = 500
		WHERE delivery_id = $1`, of.String())
	require.Equal(t, "an <answer>", *must(a.Delivery(f.ctx(), of))(t).AttemptsLog[0].Response.Body)
	f.exec(`UPDATE delivery_attempts SET response_body = '\xff00' WHERE delivery_id = $1`, of.String())
	response := must(a.Delivery(f.ctx(), of))(t).AttemptsLog[0].Response
	require.Nil(t, response.Body)
	require.Equal(t, "/wA=", response.BodyBase64)
	require.Equal(t, job.CodeRequestNotFound, codeOf(a.Delivery(f.ctx(), newID())))
}

func TestAdminBatchesAndSystem(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	ids := []job.ID{f.insertBatch(f.batch(2)).ID, f.insertBatch(f.batch(2)).ID, f.insertBatch(f.batch(2)).ID}
	batches := allPages(f, admin.Range{}, a.Batches)
	require.Equal(t, reversed(ids), each(batches, func(b admin.Batch) job.ID { return b.BatchID }))
	require.Equal(t, 2, batches[0].Total)
	require.Equal(t, map[string]int{
		"created": 0, "queued": 2, "assigned": 0, "running": 0, "succeeded": 0, "failed": 0, "canceled": 0, "refused": 0,
	}, must(a.Batch(f.ctx(), ids[0]))(t).Counts)
	require.Equal(t, job.CodeBatchNotFound, codeOf(a.Batch(f.ctx(), newID())))

	f.at(job.Created)
	f.at(job.Running)
	f.subscribe("*")
	f.submit()
	leader := newID()
	require.Nil(t, must(a.System(f.ctx()))(t).Leader)
	require.True(t, f.becomeLeader(leader))
	s := must(a.System(f.ctx()))(t)
	require.Equal(t, leader, s.Leader.LeaderID)
	require.Equal(t, []int{7, 1, 1, 2, 1, 1}, []int{s.Backlog.Queued.Count, s.Backlog.Scheduled.Count, s.Backlog.Held.Count,
		s.Backlog.Deliveries.Count, s.WorkersAlive, s.Slots})
	require.NotNil(t, s.Backlog.OldestRunAt)
	require.NotNil(t, s.Backlog.OldestDeliveryAt)
	require.Equal(t, one[int](f, `SELECT max(version_id)::int FROM goose_db_version`), s.SchemaVersion)
}

func TestAudit(t *testing.T) {
	f := setup(t)
	a := f.store.Admin()
	entry := func(operator, action, target string) job.ID {
		e := admin.AuditEntry{AuditID: newID(), Operator: operator, Action: action, TargetType: "job", RequestID: "r", Detail: []byte(`{}`)}
		if target != "" {
			e.TargetID = &target
		}
		require.NoError(t, a.Begin(f.ctx(), e))
		return e.AuditID
	}
	list := func(q admin.AuditQuery) []job.ID {
		return each(allPages(f, admin.Range{}, func(ctx context.Context, r admin.Range) (admin.Page[admin.AuditEntry], error) {
			q.After, q.Limit = r.After, r.Limit
			return a.Audit(ctx, q)
		}), func(e admin.AuditEntry) job.ID { return e.AuditID })
	}
	first, second, third := entry("ann", "cancel_job", "x"), entry("bob", "submit_job", ""), entry("ann", "retry_job", "x")
	require.Equal(t, []job.ID{third, second, first}, list(admin.AuditQuery{}))
	require.Equal(t, []job.ID{third, first}, list(admin.AuditQuery{Operator: "ann"}))
	require.Equal(t, []job.ID{first}, list(admin.AuditQuery{Action: "cancel_job", TargetID: "x"}))
	require.NoError(t, a.End(f.ctx(), second, 202, "y"))
	page := must(a.Audit(f.ctx(), admin.AuditQuery{Operator: "bob", Limit: 10}))(t)
	require.Equal(t, []any{202, "y"}, []any{*page.Data[0].Status, *page.Data[0].TargetID})
	page = must(a.Audit(f.ctx(), admin.AuditQuery{Operator: "ann", Limit: 1}))(t)
	require.Nil(t, page.Data[0].Status, "an entry without a result has no status")

	f.exec(`UPDATE audit SET at = at - interval '10 years' WHERE audit_id = $1`, first.String())
	f.clean(100)
	require.Equal(t, []job.ID{third, second}, list(admin.AuditQuery{}))
}
