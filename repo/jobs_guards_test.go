package repo_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// things are ids of what belongs to a client.
type things struct{ job, batch, webhook, delivery, schedule job.ID }

// asked are the ways to ask for something of a client's.
func (f *fixture) asked() map[string]func(client job.ID, x things) error {
	hook := func(x things) job.DeliveryOwner { return job.DeliveryOwner{WebhookID: x.webhook} }
	of := func(x things) job.DeliveryOwner { return job.DeliveryOwner{JobID: x.job} }
	list := func(c job.ID, owner job.DeliveryOwner) error {
		return errOf(f.store.Deliveries(f.ctx(), c, job.DeliveryQuery{Owner: owner, Limit: 9}))
	}
	return map[string]func(c job.ID, x things) error{
		"job":      func(c job.ID, x things) error { return errOf(f.store.Job(f.ctx(), c, x.job)) },
		"report":   func(c job.ID, x things) error { return errOf(f.store.Report(f.ctx(), c, x.job, 0)) },
		"events":   func(c job.ID, x things) error { return errOf(f.store.Events(f.ctx(), c, x.job, 0, 10)) },
		"attempts": func(c job.ID, x things) error { return errOf(f.store.Attempts(f.ctx(), c, x.job)) },
		"result":   func(c job.ID, x things) error { return errOf(f.store.Result(f.ctx(), c, x.job)) },
		"cancel":   func(c job.ID, x things) error { return errOf(f.store.Cancel(f.ctx(), c, x.job)) },
		"retry":    func(c job.ID, x things) error { return errOf(f.store.Retry(f.ctx(), c, x.job, 1, 0, "")) },
		"remove":   func(c job.ID, x things) error { return f.store.Delete(f.ctx(), c, x.job) },
		"batch":    func(c job.ID, x things) error { return errOf(f.store.Batch(f.ctx(), c, x.batch)) },
		"schedule": func(c job.ID, x things) error { return errOf(f.store.Schedule(f.ctx(), c, x.schedule)) },
		"change of a schedule": func(c job.ID, x things) error {
			return errOf(f.store.ChangeSchedule(f.ctx(), c, x.schedule, func(*job.Schedule, time.Time) error { panic("not reached") }))
		},
		"end of a schedule": func(c job.ID, x things) error { return f.store.DeleteSchedule(f.ctx(), c, x.schedule) },
		"webhook":           func(c job.ID, x things) error { return errOf(f.store.Webhook(f.ctx(), c, x.webhook)) },
		"update": func(c job.ID, x things) error {
			return errOf(f.store.UpdateWebhook(f.ctx(), c, x.webhook, enabled(false)))
		},
		"unsubscribe": func(c job.ID, x things) error { return f.store.DeleteWebhook(f.ctx(), c, x.webhook) },
		"rotate": func(c job.ID, x things) error {
			return errOf(f.store.RotateWebhookSecret(f.ctx(), c, x.webhook, []byte("x"), time.Hour))
		},
		"test": func(c job.ID, x things) error { return errOf(f.store.TestWebhook(f.ctx(), c, x.webhook)) },
		"failed": func(c job.ID, x things) error {
			return errOf(f.store.RedeliverFailed(f.ctx(), c, x.webhook, time.Time{}, 9))
		},
		"replay": func(c job.ID, x things) error {
			return errOf(f.store.ReplayEvents(f.ctx(), c, x.webhook, time.Time{}, job.Position{}, 9))
		},
		"deliveries":          func(c job.ID, x things) error { return list(c, hook(x)) },
		"deliveries of a job": func(c job.ID, x things) error { return list(c, of(x)) },
		"delivery":            func(c job.ID, x things) error { return errOf(f.store.Delivery(f.ctx(), c, hook(x), x.delivery)) },
		"delivery of a job":   func(c job.ID, x things) error { return errOf(f.store.Delivery(f.ctx(), c, of(x), x.delivery)) },
		"redeliver":           func(c job.ID, x things) error { return errOf(f.store.Redeliver(f.ctx(), c, hook(x), x.delivery)) },
	}
}

// What is another client's is told of like what never was, costs as many statements, and stays as it is.
func TestForeignThingsAreUnknown(t *testing.T) {
	f := setup(t)
	there := things{webhook: f.subscribe("*"), job: f.at(job.Failed), batch: f.insertBatch(f.batch(1)).ID, schedule: f.schedule().ID}
	there.delivery = must(job.ParseID(one[string](f, `SELECT delivery_id::text FROM deliveries WHERE job_id = $1 LIMIT 1`, there.job)))(t)
	before, hook := f.all(there.job), f.hookRow(there.webhook)
	unknown := map[job.Code]bool{job.CodeJobNotFound: true, job.CodeBatchNotFound: true, job.CodeWebhookNotFound: true,
		job.CodeScheduleMissing: true}
	for name, ask := range f.asked() {
		cost := func(client job.ID, x things) (int64, error) {
			before := f.store.Pool().Stat().AcquireCount()
			err := ask(client, x)
			return f.store.Pool().Stat().AcquireCount() - before, err
		}
		for _, stranger := range []job.ID{newID(), {}} {
			if stranger.IsZero() && strings.Contains(name, "schedule") {
				continue // that is an operator
			}
			costThere, errThere := cost(stranger, there)
			costNever, errNever := cost(stranger, things{newID(), newID(), newID(), newID(), newID()})
			require.True(t, unknown[job.CodeOf(errThere)], "%s: %v", name, errThere)
			require.Equal(t, errNever, errThere, name)
			require.Equal(t, costNever, costThere, name)
		}
	}
	require.Equal(t, before, f.all(there.job))
	require.Equal(t, hook, f.hookRow(there.webhook))
	for _, other := range []job.DeliveryOwner{{WebhookID: f.subscribe("*")}, {JobID: f.submit()}} {
		_, _, err := f.store.Delivery(f.ctx(), f.client, other, there.delivery)
		require.Equal(t, job.CodeRequestNotFound, job.CodeOf(err), "a delivery of another webhook or job")
	}
	require.NoError(t, f.store.Delete(f.ctx(), f.client, there.job))
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(f.store.Delete(f.ctx(), newID(), there.job)), "a buried one as well")
}

// What ten ask for at once, through two processes, happens once.
func TestTenAtOnceChangeOnce(t *testing.T) {
	f := setup(t)
	stores := f.twoStores()
	running, failed, ended, waiting, due := f.run().JobID, f.at(job.Failed), f.at(job.Succeeded), f.submit(), f.submit(deferred(-time.Second))
	batch := f.insertBatch(f.batch(0, refusing(2)))
	for name, test := range map[string]struct {
		do      func(s *repo.Store) (changed bool, err error)
		changes int
	}{
		"cancel": {func(s *repo.Store) (bool, error) {
			c, before, err := s.Cancel(f.ctx(), f.client, running)
			return c.Changed && before != nil, err
		}, 1},
		"claim": {func(s *repo.Store) (bool, error) {
			c, _, err := s.Claim(f.ctx(), f.newWorker(), waiting, 1)
			return c != nil, err
		}, 1},
		"queue": {func(s *repo.Store) (bool, error) { moved, err := s.QueueDue(f.ctx(), 10); return len(moved) == 1, err }, 1},
		"retry": {func(s *repo.Store) (bool, error) {
			c, err := s.Retry(f.ctx(), f.client, failed, 1, time.Second, "")
			return c.Changed && c.Attempt == 2 && c.State == job.Queued, err
		}, 1},
		"complete": {func(s *repo.Store) (bool, error) {
			done, err := s.CompleteBatches(f.ctx(), []job.ID{batch.ID})
			return len(done) == 1, err
		}, 1},
		"lead":  {func(s *repo.Store) (bool, error) { return s.Lead(f.ctx(), newID(), time.Hour, 0) }, 1},
		"epoch": {func(s *repo.Store) (bool, error) { return true, s.RaiseEpoch(f.ctx(), 1, "run-a") }, 10},
		"sign": {func(s *repo.Store) (bool, error) {
			return true, s.AddSigningKey(f.ctx(), signingKey(newID().String()), true, time.Minute, time.Hour)
		}, 10},
		"delete": {func(s *repo.Store) (bool, error) { return true, s.Delete(f.ctx(), f.client, ended) }, 10},
	} {
		var changed atomic.Int32
		f.atOnce(10, func(i int) error {
			did, err := test.do(stores[i%2])
			if did {
				changed.Add(1)
			}
			return err
		})
		require.EqualValues(t, test.changes, changed.Load(), name)
	}
	require.Len(t, f.log(running), 5)
	require.Len(t, f.log(failed), 6)
	require.Len(t, f.log(waiting), 3)
	require.Len(t, f.log(due), 2)
	require.Len(t, f.told(batch.ID), 1)
	require.Equal(t, job.StatusFailed, f.readBatch(batch.ID).Status())
	require.Equal(t, 1, f.count("tombstones"))
	require.Len(t, f.signingKeys(), 1, "the first one")
	require.Empty(t, f.log(ended))
	require.NoError(t, f.store.RaiseEpoch(f.ctx(), 7, "run-b"), "that is not the current one")
	epoch, run := must2(f.store.Epoch(f.ctx()))(t)
	require.Equal(t, []any{int64(2), "run-a"}, []any{epoch, run})
	f.checkInvariants()
}
