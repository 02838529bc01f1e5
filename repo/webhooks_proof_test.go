package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// proven stores a webhook whose receiver said that it wants events at a URL.
func (f *fixture) proven(url string) job.ID {
	f.t.Helper()
	hook := f.hook("*")
	hook.URL, hook.ProvenAt = url, &time.Time{}
	w, err := f.store.InsertWebhook(f.ctx(), hook)
	require.NoError(f.t, err)
	require.WithinDuration(f.t, time.Now(), *w.ProvenAt, time.Minute, "by Postgres' clock")
	return w.ID
}

func (f *fixture) provenURLs() []string {
	f.t.Helper()
	urls, err := f.store.ProvenURLs(f.ctx(), f.client)
	require.NoError(f.t, err)
	return urls
}

// A proof is of one URL, and counts while the webhook has it and is enabled.
func TestProofsOfWebhooks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	plain := f.subscribe("*")
	require.Nil(t, f.webhook(plain).ProvenAt)
	require.Empty(t, f.provenURLs())
	hook := f.proven("https://a.test/x")
	other := f.hook("*")
	other.ClientID, other.ProvenAt = newID(), &time.Time{}
	_, err := f.store.InsertWebhook(f.ctx(), other)
	require.NoError(t, err)
	require.Equal(t, []string{"https://a.test/x"}, f.provenURLs(), "the client's own only")

	f.patch(hook, enabled(false))
	require.Empty(t, f.provenURLs(), "a disabled webhook")
	text := "another description"
	require.NotNil(t, f.patch(hook, job.WebhookPatch{Enabled: new(true), Description: &text}).ProvenAt)
	require.NotNil(t, f.patch(hook, job.WebhookPatch{URL: new("https://a.test/x")}).ProvenAt, "the URL that it has")
	require.Len(t, f.provenURLs(), 1)

	require.Nil(t, f.patch(hook, job.WebhookPatch{URL: new("https://b.test/")}).ProvenAt)
	require.Empty(t, f.provenURLs())
	require.Nil(t, f.patch(hook, job.WebhookPatch{URL: new("https://a.test/x")}).ProvenAt, "that was long ago")
	require.NotNil(t, f.patch(hook, job.WebhookPatch{URL: new("https://b.test/"), Proven: true}).ProvenAt)
	require.NotNil(t, f.patch(plain, job.WebhookPatch{URL: &f.webhook(plain).URL, Proven: true}).ProvenAt)
	require.ElementsMatch(t, []string{"https://b.test/", "https://x.test/in"}, f.provenURLs())

	require.NoError(t, f.store.DeleteWebhook(f.ctx(), f.client, hook))
	require.Equal(t, []string{"https://x.test/in"}, f.provenURLs())
	f.checkInvariants()
}

// Programs that do not know of proofs change URLs as before. What they wrote
// stays, and its deliveries go on, whichever way the schema goes.
func TestMigrateProofsDownAndUp(t *testing.T) {
	t.Parallel()
	f := setup(t)
	newest := schema(t, f)
	hook := f.proven("https://a.test/x")
	f.exec(`UPDATE webhooks SET url = 'https://b.test/' WHERE webhook_id = $1`, hook.String())
	require.Nil(t, f.webhook(hook).ProvenAt, "as the version before changes it")
	require.Empty(t, f.provenURLs(), "nobody at that URL was asked")

	require.NoError(t, repo.Migrate(f.ctx(), f.url, 9))
	insertBefore := `INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at)
		VALUES ($1, $2, 'https://c.test/', '{*}', '', 'binary', 'x', now(), now())`
	f.exec(insertBefore, newID().String(), f.client.String())
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, newest, schema(t, f))
	f.exec(insertBefore, newID().String(), f.client.String())
	all, err := f.store.Webhooks(f.ctx(), f.client)
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, w := range all {
		require.Nil(t, w.ProvenAt)
	}
	require.Empty(t, f.provenURLs())
	f.submit()
	require.NotEmpty(t, f.deliverAll(), "webhooks without a proof get their events")
	f.checkInvariants()
}
