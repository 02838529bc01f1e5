package repo_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

// hook is a webhook of the fixture's client, ready to be stored.
func (f *fixture) hook(events ...string) job.Webhook {
	return job.Webhook{
		ID: newID(), ClientID: f.client, URL: "https://x.test/in", Events: events, Description: "d", ContentMode: job.ContentBinary,
		Secrets: []job.SealedSecret{{Sealed: []byte("first")}},
	}
}

// subscribe stores a webhook that asks for the given events.
func (f *fixture) subscribe(events ...string) job.ID {
	f.t.Helper()
	w, err := f.store.InsertWebhook(f.ctx(), f.hook(events...))
	require.NoError(f.t, err)
	return w.ID
}

func (f *fixture) webhook(id job.ID) *job.Webhook {
	f.t.Helper()
	w, err := f.store.Webhook(f.ctx(), f.client, id)
	require.NoError(f.t, err)
	return w
}

func (f *fixture) patch(id job.ID, p job.WebhookPatch) *job.Webhook {
	f.t.Helper()
	w, err := f.store.UpdateWebhook(f.ctx(), f.client, id, p)
	require.NoError(f.t, err)
	return w
}

func enabled(on bool) job.WebhookPatch { return job.WebhookPatch{Enabled: &on} }

func TestWebhookLife(t *testing.T) {
	t.Parallel()
	f := setup(t)
	sub := f.hook(job.EventSucceeded, "job.*")
	w, err := f.store.InsertWebhook(f.ctx(), sub)
	require.NoError(t, err)
	want := sub
	want.CreatedAt, want.UpdatedAt = w.CreatedAt, w.CreatedAt
	require.Equal(t, want, w)
	require.WithinDuration(t, time.Now(), w.CreatedAt, time.Minute)
	require.Equal(t, &want, f.webhook(w.ID))

	second := f.subscribe("*")
	all, err := f.store.Webhooks(f.ctx(), f.client)
	require.NoError(t, err)
	require.Equal(t, []job.ID{second, w.ID}, []job.ID{all[0].ID, all[1].ID}, "newest first")

	url, mode := "http://y.test", job.ContentStructured
	w2 := f.patch(w.ID, job.WebhookPatch{URL: &url, ContentMode: &mode})
	want.URL, want.ContentMode, want.UpdatedAt = url, mode, w2.UpdatedAt
	require.Equal(t, &want, w2, "what a patch does not name stays")
	require.True(t, w2.UpdatedAt.After(w.UpdatedAt))

	clients, err := f.store.Subscribers(f.ctx())
	require.NoError(t, err)
	require.Equal(t, []job.ID{f.client}, clients)
	off := f.patch(second, enabled(false))
	require.Equal(t, job.DisabledByOwner, off.Disabled.Reason)
	require.Equal(t, off.Disabled, f.patch(second, enabled(false)).Disabled, "repeated, it changes nothing")
	f.exec(`UPDATE webhooks SET disabled_reason = 'GONE', consecutive_failures = 3, failing_since = now() WHERE webhook_id = $1`,
		second.String())
	require.Equal(t, job.DisabledGone, f.patch(second, enabled(false)).Disabled.Reason, "an earlier reason stays")
	on := f.patch(second, enabled(true))
	require.Nil(t, on.Disabled)
	require.Zero(t, on.Failures)
	require.Nil(t, on.FailingFrom)
	f.exec(`UPDATE webhooks SET consecutive_failures = 3, failing_since = now() WHERE webhook_id = $1`, second.String())
	require.Equal(t, 3, f.patch(second, job.WebhookPatch{Events: []string{"job.*"}}).Failures)
	require.Zero(t, f.patch(second, job.WebhookPatch{URL: &url}).Failures, "another URL may be well")

	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, second))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, w.ID))
	require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(f.store.DeleteWebhook(f.ctx(), f.client, w.ID)))
	clients, err = f.store.Subscribers(f.ctx())
	require.NoError(t, err)
	require.Empty(t, clients)
}

func TestRotatedSecretStaysValid(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.subscribe("*")
	w, err := f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte("second"), time.Hour)
	require.NoError(t, err)
	require.Len(t, w.Secrets, 2)
	require.Equal(t, job.SealedSecret{Sealed: []byte("second")}, w.Secrets[0])
	require.Equal(t, "first", string(w.Secrets[1].Sealed))
	require.WithinDuration(t, time.Now().Add(time.Hour), *w.Secrets[1].Until, time.Minute)
	for _, secret := range []string{"third", "fourth", "fifth"} {
		_, err = f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte(secret), time.Hour)
		require.NoError(t, err)
	}
	var sealed []string
	for _, s := range f.webhook(id).Secrets {
		sealed = append(sealed, string(s.Sealed))
	}
	require.Equal(t, []string{"fifth", "fourth", "third", "second"}, sealed, "a few that were rotated in a row are kept")
	f.exec(`UPDATE webhooks SET old_secrets_until[2] = clock_timestamp()`)
	require.Len(t, f.webhook(id).Secrets, 3)
	f.exec(`UPDATE webhooks SET old_secrets_until = array_fill(clock_timestamp(), ARRAY[3])`)
	require.Len(t, f.webhook(id).Secrets, 1)
}

// Deliveries are written in the transaction of the events that they are for: the
// largest batch has the time for as many as a client may have.
func TestLargestBatchForAllWebhooks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range job.MaxWebhooks {
		f.subscribe("*")
	}
	_, _, err := f.store.InsertBatch(f.ctx(), f.batch(1000))
	require.NoError(t, err)
	require.Equal(t, 1000*job.MaxWebhooks*2, f.count("deliveries"), "of job.created and job.queued")
}

func TestDeletedWebhookHasNoSecrets(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.subscribe("*")
	_, err := f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte("second"), time.Hour)
	require.NoError(t, err)
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, id))
	require.Equal(t, "0 0 0", one[string](f, `SELECT concat_ws(' ', length(secret), cardinality(old_secrets), cardinality(old_secrets_until))
		FROM webhooks`))
}

// Ten processes add webhooks for one client at once; while the table is locked,
// each of them has come as far as it can.
func TestWebhooksAreLimited(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at)
		SELECT gen_random_uuid(), $1, 'u', '{*}', '', 'binary', 'x', now(), now() FROM generate_series(1, $2)`, f.client.String(),
		job.MaxWebhooks-3)
	errs := make([]error, 10)
	unlock := f.lock(`LOCK TABLE webhooks IN SHARE MODE`)
	var unlocked sync.WaitGroup
	unlocked.Go(func() { f.awaitBlocked(len(errs)); unlock() })
	inParallel(len(errs), func(i int) {
		s := repotest.OpenURL(t, f.url, patient)
		_, _, errs[i] = s.Once(f.ctx(), f.requestKey(fmt.Sprint("k", i)), func(ctx context.Context) (job.Answer, error) {
			_, err := s.InsertWebhook(ctx, f.hook("*"))
			return someAnswer, err
		})
	})
	unlocked.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			require.Equal(t, job.CodeConflict, job.CodeOf(err), "%v", err)
			refused++
		}
	}
	require.Equal(t, 7, refused)
	require.Equal(t, job.MaxWebhooks, f.count("webhooks"))
	require.Equal(t, 3, f.count("idempotency_keys"), "who was refused has used no key")
}

// Foreign webhooks and jobs are told of like those that never were, and cost
// as many statements.
func TestForeignWebhooksCostTheSame(t *testing.T) {
	t.Parallel()
	f := setup(t)
	foreign, foreignJob, stranger := f.subscribe("*"), f.at(job.Succeeded), newID()
	delivery := one[string](f, `SELECT delivery_id::text FROM deliveries LIMIT 1`)
	did, err := job.ParseID(delivery)
	require.NoError(t, err)
	hook := func(id job.ID) job.DeliveryOwner { return job.DeliveryOwner{WebhookID: id} }
	of := func(id job.ID) job.DeliveryOwner { return job.DeliveryOwner{JobID: id} }
	for name, ask := range map[string]func(webhook, job, delivery job.ID) error{
		"read": func(w, _, _ job.ID) error { _, err := f.store.Webhook(f.ctx(), stranger, w); return err },
		"update": func(w, _, _ job.ID) error {
			_, err := f.store.UpdateWebhook(f.ctx(), stranger, w, enabled(false))
			return err
		},
		"delete": func(w, _, _ job.ID) error { return f.store.DeleteWebhook(f.ctx(), stranger, w) },
		"rotate": func(w, _, _ job.ID) error {
			_, err := f.store.RotateWebhookSecret(f.ctx(), stranger, w, []byte("x"), time.Hour)
			return err
		},
		"test": func(w, _, _ job.ID) error { _, err := f.store.TestWebhook(f.ctx(), stranger, w); return err },
		"failed": func(w, _, _ job.ID) error {
			_, err := f.store.RedeliverFailed(f.ctx(), stranger, w, time.Time{}, 9)
			return err
		},
		"replay": func(w, _, _ job.ID) error {
			_, err := f.store.ReplayEvents(f.ctx(), stranger, w, time.Time{}, job.Position{}, 9)
			return err
		},
		"list": func(w, _, _ job.ID) error {
			_, err := f.store.Deliveries(f.ctx(), stranger, job.DeliveryQuery{Owner: hook(w), Limit: 9})
			return err
		},
		"list of a job": func(_, j, _ job.ID) error {
			_, err := f.store.Deliveries(f.ctx(), stranger, job.DeliveryQuery{Owner: of(j), Limit: 9})
			return err
		},
		"delivery":          func(w, _, d job.ID) error { _, _, err := f.store.Delivery(f.ctx(), stranger, hook(w), d); return err },
		"delivery of a job": func(_, j, d job.ID) error { _, _, err := f.store.Delivery(f.ctx(), stranger, of(j), d); return err },
		"redeliver":         func(w, _, d job.ID) error { _, err := f.store.Redeliver(f.ctx(), stranger, hook(w), d); return err },
	} {
		cost := func(w, j, d job.ID) (int64, error) {
			before := f.store.Pool().Stat().AcquireCount()
			err := ask(w, j, d)
			return f.store.Pool().Stat().AcquireCount() - before, err
		}
		there, errThere := cost(foreign, foreignJob, did)
		never, errNever := cost(newID(), newID(), newID())
		require.Contains(t, []job.Code{job.CodeWebhookNotFound, job.CodeJobNotFound}, job.CodeOf(errThere), name)
		require.Equal(t, errNever, errThere, name)
		require.Equal(t, never, there, name)
	}
	require.Nil(t, f.webhook(foreign).Disabled)

	_, _, err = f.store.Delivery(f.ctx(), f.client, hook(f.subscribe("*")), did)
	require.Equal(t, job.CodeRequestNotFound, job.CodeOf(err), "a delivery of another webhook")
	_, _, err = f.store.Delivery(f.ctx(), f.client, of(f.submit()), did)
	require.Equal(t, job.CodeRequestNotFound, job.CodeOf(err), "and of another job")
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, foreign))
	_, _, err = f.store.Delivery(f.ctx(), f.client, hook(foreign), did)
	require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(err), "of a deleted webhook")
	_, _, err = f.store.Delivery(f.ctx(), f.client, of(foreignJob), did)
	require.NoError(t, err, "the job shows it still")
}

func TestCleanRemovesDeletedWebhooks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	old, young := f.subscribe("*"), f.subscribe("*")
	f.at(job.Succeeded)
	f.deliverAll()
	n := f.count("deliveries")
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, old))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, young))
	f.exec(`UPDATE webhooks SET deleted_at = deleted_at - $2::interval WHERE webhook_id = $1`, old.String(), month)
	f.clean(2)
	require.Equal(t, 1, f.count("webhooks"))
	require.Equal(t, n/2, f.count("deliveries"))
	f.checkInvariants()
}
