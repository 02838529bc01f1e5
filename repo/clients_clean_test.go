package repo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func (f *fixture) useKey(id string) (exists bool) {
	f.t.Helper()
	exists, err := f.store.UseKey(f.ctx(), id)
	require.NoError(f.t, err)
	return exists
}

// ageClient lets a client and its keys have been made longer ago.
func (f *fixture) ageClient(id job.ID, by time.Duration) {
	f.t.Helper()
	f.exec(`UPDATE clients SET created_at = created_at - $2::interval WHERE client_id = $1`, id.String(), by)
	f.exec(`UPDATE api_keys SET created_at = created_at - $2::interval WHERE client_id = $1`, id.String(), by)
}

func (f *fixture) clientExists(id job.ID) bool {
	f.t.Helper()
	return one[bool](f, `SELECT EXISTS (SELECT FROM clients WHERE client_id = $1)`, id.String())
}

func TestCleanRemovesClientsThatWereNeverUsed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	clients := map[string]job.ID{}
	add := func(name string, age time.Duration, keys ...string) {
		clients[name] = f.newClient().ID
		for _, k := range keys {
			f.addKey(clients[name], k)
		}
		f.ageClient(clients[name], age)
	}
	add("no key", month+time.Minute)
	add("two keys", month+time.Minute, "a", "b")
	add("young", month-time.Minute, "c")
	add("used", month+time.Minute, "d", "e")
	f.useKey("e")
	add("with a new key", month+time.Minute, "f")
	f.addKey(clients["with a new key"], "g")
	add("perhaps with keys that are removed", 3*month+time.Minute)
	add("with a webhook", month+time.Minute, "h")
	f.exec(`INSERT INTO clients (client_id, created_at) VALUES ($1, now() - interval '31 days') ON CONFLICT DO NOTHING`, f.client.String())
	f.submit()
	hook := f.subscribe(job.EventCreated)
	f.exec(`UPDATE webhooks SET client_id = $1 WHERE webhook_id = $2`, clients["with a webhook"].String(), hook.String())

	f.clean(1)
	for range 5 {
		f.clean(1) // a slice each
	}
	for name, id := range clients {
		require.Equal(t, name != "no key" && name != "two keys", f.clientExists(id), name)
	}
	require.True(t, f.clientExists(f.client), "it has a job")
	require.False(t, f.useKey("a"))
	require.Equal(t, 6, f.count("api_keys"))
}

// Who begins to use a key while its client is removed keeps it, or is told that
// the key is gone.
func TestAClientThatBeginsWhileItIsRemoved(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 40
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = f.newClient().ID
		f.addKey(ids[i], fmt.Sprint("key-", i))
		f.ageClient(ids[i], month+time.Minute)
	}
	begun, err := f.db.Begin(f.ctx()) // a use that commits while the removal waits for it
	require.NoError(t, err)
	_, err = begun.Exec(f.ctx(), `UPDATE api_keys SET used_at = now() WHERE key_id = 'key-0'`)
	require.NoError(t, err)
	cleaned := make(chan error)
	go func() {
		_, err := f.store.Clean(f.ctx(), 1000)
		cleaned <- err
	}()
	f.awaitBlocked(1)
	used := make(chan bool)
	go func() { // waits for the removal, or comes before it
		exists, err := f.store.UseKey(f.ctx(), "key-1")
		if err != nil {
			t.Error(err)
		}
		used <- exists
	}()
	require.NoError(t, begun.Commit(f.ctx()))
	require.NoError(t, <-cleaned)
	require.Equal(t, <-used, f.clientExists(ids[1]))
	require.True(t, f.clientExists(ids[0]))
	require.True(t, f.useKey("key-0"))
	require.False(t, f.clientExists(ids[2]))
}
