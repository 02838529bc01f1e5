package repo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

type resources struct{ job, batch, webhook, delivery, schedule job.ID }

func (f *fixture) requests(ctx context.Context) map[string]func(client job.ID, x resources) error {
	hook := func(x resources) job.DeliveryOwner { return job.DeliveryOwner{WebhookID: x.webhook} }
	of := func(x resources) job.DeliveryOwner { return job.DeliveryOwner{JobID: x.job} }
	list := func(c job.ID, owner job.DeliveryOwner) error {
		return errOf(f.store.Deliveries(ctx, c, job.DeliveryQuery{Owner: owner, Limit: 9}))
	}
	return map[string]func(c job.ID, x resources) error{
		"job":      func(c job.ID, x resources) error { return errOf(f.store.Job(ctx, c, x.job)) },
		"report":   func(c job.ID, x resources) error { return errOf(f.store.Report(ctx, c, x.job, 0)) },
		"events":   func(c job.ID, x resources) error { return errOf(f.store.Events(ctx, c, x.job, 0, 10)) },
		"attempts": func(c job.ID, x resources) error { return errOf(f.store.Attempts(ctx, c, x.job)) },
		"result":   func(c job.ID, x resources) error { return errOf(f.store.Result(ctx, c, x.job)) },
		"cancel":   func(c job.ID, x resources) error { return errOf(f.store.Cancel(ctx, c, x.job)) },
		"retry":    func(c job.ID, x resources) error { return errOf(f.store.Retry(ctx, c, x.job, 1, 0, "")) },
		"remove":   func(c job.ID, x resources) error { return f.store.Delete(ctx, c, x.job) },
		"batch":    func(c job.ID, x resources) error { return errOf(f.store.Batch(ctx, c, x.batch)) },
		"schedule": func(c job.ID, x resources) error { return errOf(f.store.Schedule(ctx, c, x.schedule)) },
		"change of a schedule": func(c job.ID, x resources) error {
			return errOf(f.store.ChangeSchedule(ctx, c, x.schedule, func(*job.Schedule, time.Time) error { panic("not reached") }))
		},
		"end of a schedule": func(c job.ID, x resources) error { return f.store.DeleteSchedule(ctx, c, x.schedule) },
		"webhook":           func(c job.ID, x resources) error { return errOf(f.store.Webhook(ctx, c, x.webhook)) },
		"update": func(c job.ID, x resources) error {
			return errOf(f.store.UpdateWebhook(ctx, c, x.webhook, enabled(false)))
		},
		"unsubscribe": func(c job.ID, x resources) error { return f.store.DeleteWebhook(ctx, c, x.webhook) },
		"rotate": func(c job.ID, x resources) error {
			return errOf(f.store.RotateWebhookSecret(ctx, c, x.webhook, []byte("x"), time.Hour))
		},
		"test": func(c job.ID, x resources) error { return errOf(f.store.TestWebhook(ctx, c, x.webhook)) },
		"failed": func(c job.ID, x resources) error {
			return errOf(f.store.RedeliverFailed(ctx, c, x.webhook, time.Time{}, 9))
		},
		"replay": func(c job.ID, x resources) error {
			return errOf(f.store.ReplayEvents(ctx, c, x.webhook, time.Time{}, job.Position{}, 9))
		},
		"deliveries":          func(c job.ID, x resources) error { return list(c, hook(x)) },
		"deliveries of a job": func(c job.ID, x resources) error { return list(c, of(x)) },
		"delivery":            func(c job.ID, x resources) error { return errOf(f.store.Delivery(ctx, c, hook(x), x.delivery)) },
		"delivery of a job":   func(c job.ID, x resources) error { return errOf(f.store.Delivery(ctx, c, of(x), x.delivery)) },
		"redeliver":           func(c job.ID, x resources) error { return errOf(f.store.Redeliver(ctx, c, hook(x), x.delivery)) },
	}
}

// Requests for another client's resources and for unknown resources return the same error, after the same number of statements.
// Promise: contract 13, 14
func TestForeignThingsAreUnknown(t *testing.T) {
	f := setup(t)
	there := resources{webhook: f.subscribe("*"), job: f.at(job.Failed), batch: f.insertBatch(f.batch(1)).ID, schedule: f.schedule().ID}
	there.delivery = must(job.ParseID(one[string](f, `SELECT delivery_id::text FROM deliveries WHERE job_id = $1 LIMIT 1`, there.job)))(t)
	before, hook := f.all(there.job), f.hookRow(there.webhook)
	unknown := map[job.Code]bool{job.CodeJobNotFound: true, job.CodeBatchNotFound: true, job.CodeWebhookNotFound: true,
		job.CodeScheduleMissing: true}
	for name, ask := range f.requests(t.Context()) {
		cost := func(client job.ID, x resources) (int64, error) {
			before := f.store.Pool().Stat().AcquireCount()
			err := ask(client, x)
			return f.store.Pool().Stat().AcquireCount() - before, err
		}
		for _, stranger := range []job.ID{newID(), {}} {
			if stranger.IsZero() && strings.Contains(name, "schedule") {
				continue // for schedule requests, the zero client means an operator
			}
			costThere, errThere := cost(stranger, there)
			costNever, errNever := cost(stranger, resources{newID(), newID(), newID(), newID(), newID()})
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
	require.Equal(t, job.CodeJobNotFound, job.CodeOf(f.store.Delete(f.ctx(), newID(), there.job)), "another client's deleted job is not found")
}

// Promise: contract 12b
func TestTenAtOnceChangeOnce(t *testing.T) {
	f := setup(t)
	stores := f.twoStores()
	running, failed, ended, waiting, due := f.run().JobID, f.at(job.Failed), f.at(job.Succeeded), f.submit(), f.submit(deferred(-time.Second))
	batch, keyed := f.insertBatch(f.batch(0, refusing(2))), f.at(job.Running)
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
		"lead": {func(s *repo.Store) (bool, error) { return s.Lead(f.ctx(), newID(), time.Hour, 0) }, 1},
		"sign": {func(s *repo.Store) (bool, error) {
			return true, s.AddSigningKey(f.ctx(), signingKey(newID().String()), true, time.Minute, time.Hour)
		}, 10},
		"delete": {func(s *repo.Store) (bool, error) { return true, s.Delete(f.ctx(), f.client, ended) }, 10},
		"request with a key": {func(s *repo.Store) (bool, error) {
			answer, replayed, err := s.Once(f.ctx(), f.requestKey("k"), canceling(s, f.client, keyed))
			if string(answer.Body) != string(someAnswer.Body) {
				err = errors.Join(err, fmt.Errorf("answered %+v", answer))
			}
			return !replayed, err
		}, 1},
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
	require.Len(t, f.completedEvents(batch.ID), 1)
	require.Equal(t, job.StatusFailed, f.readBatch(batch.ID).Status())
	require.Equal(t, 1, f.count("tombstones"))
	require.Len(t, f.signingKeys(), 1, "only the first key is stored")
	require.Empty(t, f.log(ended))
	f.checkInvariants()
}

func (f *fixture) requestKey(key string) job.RequestKey {
	return job.RequestKey{ClientID: f.client, Scope: "client", Key: key, Hash: [32]byte{1}}
}

var someAnswer = job.Answer{Status: 200, Header: map[string]string{"Location": "/x"}, Body: []byte(`{"b":1,"a":null}`)}

func canceling(s *repo.Store, client, id job.ID) func(context.Context) (job.Answer, error) {
	return func(ctx context.Context) (job.Answer, error) {
		change, _, err := s.Cancel(ctx, client, id)
		if err == nil && !change.Changed {
			err = errors.New("it was canceled before")
		}
		return someAnswer, err
	}
}

func TestKeyEffectAndAnswerAreOneCommit(t *testing.T) {
	f := setup(t)
	id := f.submit()
	answer, replayed := must2(f.store.Once(f.ctx(), f.requestKey("k"), func(ctx context.Context) (job.Answer, error) {
		a, err := canceling(f.store, f.client, id)(ctx)
		require.Equal(t, job.Queued, f.job(id).State, "other transactions do not see the change yet")
		require.Zero(t, f.count("idempotency_keys"))
		within, readErr := f.store.Job(ctx, f.client, id)
		require.NoError(t, readErr)
		require.Equal(t, job.Canceled, within.State)
		return a, err
	}))(t)
	require.False(t, replayed)
	require.Equal(t, someAnswer, answer)
	require.Equal(t, job.Canceled, f.job(id).State)

	all := f.all(id)
	answer, replayed = must2(f.store.Once(f.ctx(), f.requestKey("k"), func(context.Context) (job.Answer, error) {
		panic("not reached")
	}))(t)
	require.True(t, replayed)
	require.Equal(t, someAnswer, answer, "the answer has the same bytes")
	require.Equal(t, all, f.all(id))
	other := f.requestKey("k")
	other.Hash[0]++
	require.Equal(t, job.CodeIdempotencyConflict, codeOf(f.store.Once(f.ctx(), other, canceling(f.store, f.client, id))))
	for _, apart := range []job.RequestKey{{ClientID: newID(), Scope: "client", Key: "k"}, {Scope: "anonymous", Key: "k"}} {
		_, replayed := must2(f.store.Once(f.ctx(), apart, func(context.Context) (job.Answer, error) { return someAnswer, nil }))(t)
		require.False(t, replayed)
	}

	f.expireKeys()
	_, replayed = must2(f.store.Once(f.ctx(), other, func(context.Context) (job.Answer, error) { return someAnswer, nil }))(t)
	require.False(t, replayed, "the key has expired")
	f.checkInvariants()
}

func TestFailedTransactionsWriteNothing(t *testing.T) {
	f := setup(t)
	id := f.submit()
	all := f.all(id)
	refusal := job.Errorf(job.CodeConflict, "No.")
	ended, end := context.WithCancel(f.ctx())
	for name, after := range map[string]func() error{
		"a refusal":              func() error { return refusal },
		"the end of the request": func() error { end(); return nil },
		"a lost connection":      func() error { f.killConnections(); return nil },
	} {
		ctx := f.ctx()
		if name == "the end of the request" {
			ctx = ended
		}
		_, _, err := f.store.Once(ctx, f.requestKey(name), func(ctx context.Context) (job.Answer, error) {
			a := must(canceling(f.store, f.client, id)(ctx))(t)
			return a, after()
		})
		require.Error(t, err, name)
		require.Equal(t, all, f.all(id), name)
		require.Zero(t, f.count("idempotency_keys"), name)
	}
	_, replayed := must2(f.store.Once(f.ctx(), f.requestKey("a refusal"), canceling(f.store, f.client, id)))(t)
	require.False(t, replayed)
}

func (f *fixture) killConnections() {
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND state = 'idle in transaction'`)
}

func TestCancelAll(t *testing.T) {
	f := setup(t)
	cancelAll := func(ctx context.Context) {
		open := []job.ID{f.submit(), f.at(job.Running), f.submit()}
		done := must(f.store.CancelAll(ctx, f.client, append([]job.ID{f.at(job.Succeeded), newID()}, open...)))(t)
		for _, c := range done {
			require.True(t, c.Change.Changed)
			require.False(t, c.Before.State.Final())
		}
		require.ElementsMatch(t, open, each(done, func(c job.Canceling) job.ID { return c.Before.ID }))
		for _, id := range open {
			require.Equal(t, job.Canceled, must(f.store.Job(ctx, f.client, id))(t).State)
		}
	}
	cancelAll(f.ctx())
	must2(f.store.Once(f.ctx(), f.requestKey("k"), func(ctx context.Context) (job.Answer, error) {
		cancelAll(ctx)
		return someAnswer, nil
	}))(t)
	f.checkInvariants()
}

func TestFirstUseOfAKeyIsStored(t *testing.T) {
	f := setup(t)
	f.addKey(f.newClient().ID, "key")
	require.Nil(t, must(f.store.Key(f.ctx(), "key"))(t).UsedAt)
	f.useKey("key")
	require.WithinDuration(t, time.Now(), *must(f.store.Key(f.ctx(), "key"))(t).UsedAt, testkit.Patience)
	row := one[string](f, `SELECT xmin::text FROM api_keys`)
	f.useKey("key")
	require.Equal(t, row, one[string](f, `SELECT xmin::text FROM api_keys`), "the first use is written once")
}
