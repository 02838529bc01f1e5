package repo_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) hook(events ...string) job.Webhook {
	return job.Webhook{
		ID: newID(), ClientID: f.client, URL: "https://x.test/in", Events: events, Description: "d", ContentMode: job.ContentBinary,
		Secrets: []job.SealedSecret{{Sealed: []byte("first")}},
	}
}

func (f *fixture) subscribe(events ...string) job.ID {
	w := must(f.store.InsertWebhook(f.ctx(), f.hook(events...)))(f.t)
	return w.ID
}

func (f *fixture) webhook(id job.ID) *job.Webhook {
	return must(f.store.Webhook(f.ctx(), f.client, id))(f.t)
}

func (f *fixture) patch(id job.ID, p job.WebhookPatch) *job.Webhook {
	return must(f.store.UpdateWebhook(f.ctx(), f.client, id, p))(f.t)
}

func enabled(on bool) job.WebhookPatch { return job.WebhookPatch{Enabled: &on} }

func TestWebhookLife(t *testing.T) {
	f := setup(t)
	sub := f.hook(job.EventSucceeded, "job.*")
	w := must(f.store.InsertWebhook(f.ctx(), sub))(t)
	want := sub
	want.CreatedAt, want.UpdatedAt = w.CreatedAt, w.CreatedAt
	require.Equal(t, want, w)
	require.WithinDuration(t, time.Now(), w.CreatedAt, testkit.Patience)
	require.Equal(t, &want, f.webhook(w.ID))

	second := f.subscribe("*")
	all := must(f.store.Webhooks(f.ctx(), f.client))(t)
	require.Equal(t, []job.ID{second, w.ID}, []job.ID{all[0].ID, all[1].ID}, "newest first")

	url, mode := "http://y.test", job.ContentStructured
	w2 := f.patch(w.ID, job.WebhookPatch{URL: &url, ContentMode: &mode})
	want.URL, want.ContentMode, want.UpdatedAt = url, mode, w2.UpdatedAt
	require.Equal(t, &want, w2, "other members stay")
	require.True(t, w2.UpdatedAt.After(w.UpdatedAt))

	require.ElementsMatch(t, []job.EndpointKey{{Client: f.client, Endpoint: w.ID}, {Client: f.client, Endpoint: second}},
		must(f.store.Subscribers(f.ctx()))(t))
	off := f.patch(second, enabled(false))
	require.Equal(t, job.DisabledByOwner, off.Disabled.Reason)
	require.Equal(t, off.Disabled, f.patch(second, enabled(false)).Disabled, "a repeated call changes nothing")
	f.exec(`UPDATE webhooks SET disabled_reason = 'GONE', consecutive_failures = 3, failing_since = now() WHERE webhook_id = $1`,
		second.String())
	require.Equal(t, job.DisabledGone, f.patch(second, enabled(false)).Disabled.Reason, "an earlier reason stays")
	on := f.patch(second, enabled(true))
	require.Nil(t, on.Disabled)
	require.Zero(t, on.Failures)
	require.Nil(t, on.FailingFrom)
	f.exec(`UPDATE webhooks SET consecutive_failures = 3, failing_since = now() WHERE webhook_id = $1`, second.String())
	require.Equal(t, 3, f.patch(second, job.WebhookPatch{Events: []string{"job.*"}}).Failures)
	require.Zero(t, f.patch(second, job.WebhookPatch{URL: &url}).Failures, "a new URL resets the failures")

	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, second))
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, w.ID))
	require.Equal(t, job.CodeWebhookNotFound, job.CodeOf(f.store.DeleteWebhook(f.ctx(), f.client, w.ID)))
	require.Empty(t, must(f.store.Subscribers(f.ctx()))(t))
}

func TestRotatedSecretStaysValid(t *testing.T) {
	f := setup(t)
	id := f.subscribe("*")
	w := must(f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte("second"), time.Hour))(t)
	require.Len(t, w.Secrets, 2)
	require.Equal(t, job.SealedSecret{Sealed: []byte("second")}, w.Secrets[0])
	require.Equal(t, "first", string(w.Secrets[1].Sealed))
	require.WithinDuration(t, time.Now().Add(time.Hour), *w.Secrets[1].Until, testkit.Patience)
	for _, secret := range []string{"third", "fourth", "fifth"} {
		must(f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte(secret), time.Hour))(t)
	}
	var sealed []string
	for _, s := range f.webhook(id).Secrets {
		sealed = append(sealed, string(s.Sealed))
	}
	require.Equal(t, []string{"fifth", "fourth", "third", "second"}, sealed, "the last three old secrets are kept")
	f.exec(`UPDATE webhooks SET old_secrets_until[2] = clock_timestamp()`)
	require.Len(t, f.webhook(id).Secrets, 3)
	f.exec(`UPDATE webhooks SET old_secrets_until = array_fill(clock_timestamp(), ARRAY[3])`)
	require.Len(t, f.webhook(id).Secrets, 1)
	must(f.store.RotateWebhookSecret(f.ctx(), f.client, id, []byte("last"), time.Hour))(t)
	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, id))
	require.Equal(t, "0 0 0", one[string](f, `SELECT concat_ws(' ', length(secret), cardinality(old_secrets), cardinality(old_secrets_until))
		FROM webhooks`))
}

// A lock on the table delays ten transactions, so that they overlap.
func TestWebhooksAreLimited(t *testing.T) {
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
	require.Equal(t, 3, f.count("idempotency_keys"), "refused requests use no key")
}

func TestCleanRemovesDeletedWebhooks(t *testing.T) {
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

func (f *fixture) proven(url string) job.ID {
	hook := f.hook("*")
	hook.URL, hook.ProvenAt = url, &time.Time{}
	w := must(f.store.InsertWebhook(f.ctx(), hook))(f.t)
	require.WithinDuration(f.t, time.Now(), *w.ProvenAt, testkit.Patience, "by Postgres' clock")
	return w.ID
}

func (f *fixture) provenURLs() []string { return must(f.store.ProvenURLs(f.ctx(), f.client))(f.t) }

// A proof is valid only for one URL, and only while the webhook is enabled.
func TestProofsOfWebhooks(t *testing.T) {
	f := setup(t)
	plain := f.subscribe("*")
	require.Nil(t, f.webhook(plain).ProvenAt)
	require.Empty(t, f.provenURLs())
	hook := f.proven("https://a.test/x")
	other := f.hook("*")
	other.ClientID, other.ProvenAt = newID(), &time.Time{}
	must(f.store.InsertWebhook(f.ctx(), other))(t)
	require.Equal(t, []string{"https://a.test/x"}, f.provenURLs(), "only the client's own URLs")

	f.patch(hook, enabled(false))
	require.Empty(t, f.provenURLs(), "a disabled webhook")
	text := "another description"
	require.NotNil(t, f.patch(hook, job.WebhookPatch{Enabled: new(true), Description: &text}).ProvenAt)
	require.NotNil(t, f.patch(hook, job.WebhookPatch{URL: new("https://a.test/x")}).ProvenAt, "the current URL")
	require.Len(t, f.provenURLs(), 1)

	require.Nil(t, f.patch(hook, job.WebhookPatch{URL: new("https://b.test/")}).ProvenAt)
	require.Empty(t, f.provenURLs())
	require.Nil(t, f.patch(hook, job.WebhookPatch{URL: new("https://a.test/x")}).ProvenAt, "a proof of an earlier URL does not count")
	require.NotNil(t, f.patch(hook, job.WebhookPatch{URL: new("https://b.test/"), Proven: true}).ProvenAt)
	require.NotNil(t, f.patch(plain, job.WebhookPatch{URL: &f.webhook(plain).URL, Proven: true}).ProvenAt)
	require.ElementsMatch(t, []string{"https://b.test/", "https://x.test/in"}, f.provenURLs())

	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, hook))
	require.Equal(t, []string{"https://x.test/in"}, f.provenURLs())
	f.checkInvariants()
}

func signingKey(kid string) job.SigningKey {
	return job.SigningKey{KID: kid, Public: make([]byte, 32), Sealed: []byte("sealed " + kid)}
}

func (f *fixture) signingKeys() []job.SigningKey { return must(f.store.SigningKeys(f.ctx()))(f.t) }

func (f *fixture) addSigningKey(kid string, onlyFirst bool) {
	require.NoError(f.t, f.store.AddSigningKey(f.ctx(), signingKey(kid), onlyFirst, 10*time.Minute, 24*time.Hour))
}

func TestSigningKeys(t *testing.T) {
	f := setup(t)
	require.Empty(t, f.signingKeys())
	f.addSigningKey("a", false)
	keys := f.signingKeys()
	require.Equal(t, []any{"a", "sealed a"}, []any{keys[0].KID, string(keys[0].Sealed)})
	require.WithinDuration(t, time.Now(), keys[0].SignsFrom, testkit.Patience, "the first key signs immediately")
	require.Nil(t, keys[0].RetiresAt)

	f.addSigningKey("x", true)
	require.Equal(t, keys, f.signingKeys(), "a key already exists")
	f.addSigningKey("a", false)
	require.Equal(t, keys, f.signingKeys(), "the key is known")

	f.addSigningKey("b", false)
	keys = f.signingKeys()
	require.Len(t, keys, 2)
	require.Equal(t, "b", keys[1].KID)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), keys[1].SignsFrom, testkit.Patience)
	require.Equal(t, keys[1].SignsFrom.Add(24*time.Hour), *keys[0].RetiresAt)
	f.addSigningKey("b", false)
	require.Equal(t, keys, f.signingKeys(), "a repeated call changes nothing")

	f.addSigningKey("a", false)
	keys = f.signingKeys()
	require.Equal(t, "a", keys[1].KID, "a retiring key becomes the newest again")
	require.Nil(t, keys[1].RetiresAt)
	require.NotNil(t, keys[0].RetiresAt)

	f.exec(`UPDATE signing_keys SET retires_at = clock_timestamp() WHERE kid = 'b'`)
	require.Len(t, f.signingKeys(), 1)
	f.clean(100)
	require.Equal(t, 1, f.count("signing_keys"))
}
