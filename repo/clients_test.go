package repo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

type decision = func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)

func (f *fixture) newClient() job.Client { return must(f.store.InsertClient(f.ctx(), newID()))(f.t) }

func key(client job.ID, id string, now time.Time) job.APIKey {
	now = now.Truncate(time.Microsecond)
	return job.APIKey{ID: id, ClientID: client, SecretHash: [32]byte{1, 2, 3}, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		IssuedBy: job.KeyCreated, Scope: job.ScopeSubmit, MadeBy: "maker"}
}

func (f *fixture) addKey(client job.ID, id string) job.APIKey {
	var added job.APIKey
	require.NoError(f.t, f.store.ChangeKeys(f.ctx(), client, func(_ job.Client, now time.Time, _ []job.APIKey) (job.KeyChange, error) {
		added = key(client, id, now)
		return job.KeyChange{New: &added}, nil
	}))
	return added
}

func (f *fixture) changeKey(client job.ID, id string, change func(k *job.APIKey)) {
	require.NoError(f.t, f.store.ChangeKeys(f.ctx(), client, func(_ job.Client, _ time.Time, keys []job.APIKey) (job.KeyChange, error) {
		for _, k := range keys {
			if k.ID == id {
				change(&k)
				return job.KeyChange{Changed: []job.APIKey{k}}, nil
			}
		}
		return job.KeyChange{}, errors.New("no such key")
	}))
}

func TestKeysAreStoredAndRead(t *testing.T) {
	f := setup(t)
	c := f.newClient()
	require.Nil(t, must(f.store.Key(f.ctx(), "k1"))(t))

	first, second := f.addKey(c.ID, "k1"), f.addKey(c.ID, "k2")
	f.addKey(f.newClient().ID, "another client's")
	got := must(f.store.Key(f.ctx(), "k1"))(t)
	require.Empty(t, cmp.Diff(&first, got))

	revoked := first.CreatedAt.Add(time.Minute)
	f.changeKey(c.ID, "k1", func(k *job.APIKey) {
		k.RevokedAt, k.ReplacedBy, k.ExpiresAt = &revoked, "k2", revoked.Add(time.Second)
	})
	require.NoError(t, f.store.ChangeKeys(f.ctx(), c.ID, func(got job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		first.RevokedAt, first.ReplacedBy, first.ExpiresAt = &revoked, "k2", revoked.Add(time.Second)
		require.Empty(t, cmp.Diff([]job.APIKey{second, first}, keys), "all keys of the client, newest first")
		require.Equal(t, c, got)
		require.WithinDuration(t, time.Now(), now, testkit.Patience)
		return job.KeyChange{}, nil
	}))
}

func TestChangeKeysIsAllOrNothing(t *testing.T) {
	f := setup(t)
	c := f.newClient()
	k1 := f.addKey(c.ID, "k1")
	for name, decide := range map[string]decision{
		"refused": func(_ job.Client, now time.Time, _ []job.APIKey) (job.KeyChange, error) {
			k2 := key(c.ID, "k2", now)
			return job.KeyChange{New: &k2}, errors.New("no")
		},
		"id is taken": func(_ job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
			keys[0].RevokedAt = &now
			again := key(c.ID, "k1", now)
			return job.KeyChange{New: &again, Changed: keys}, nil
		},
	} {
		require.Error(t, f.store.ChangeKeys(f.ctx(), c.ID, decide), name)
		require.Equal(t, &k1, must(f.store.Key(f.ctx(), "k1"))(t), name)
		require.Equal(t, 1, f.count("api_keys"), name)
	}

	refusal, troubles := job.Errorf(job.CodeClientNotFound, "No client."), f.storageErrors()
	err := f.store.ChangeKeys(f.ctx(), newID(), func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		require.True(t, c.ID.IsZero())
		require.True(t, now.IsZero())
		require.Empty(t, keys)
		return job.KeyChange{}, refusal
	})
	require.Same(t, refusal, err, "the error of decide is returned unchanged")
	require.Equal(t, troubles, f.storageErrors())
}

func TestConcurrentChangesOfAClientsKeysTakeTurns(t *testing.T) {
	f := setup(t)
	stores := f.twoStores()
	c := f.newClient()
	const n = 30
	f.atOnce(n, func(i int) error {
		return stores[i%2].ChangeKeys(f.ctx(), c.ID, func(_ job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
			added := key(c.ID, fmt.Sprintf("k%02d", len(keys)), now) // two changes that saw the same keys would choose the same id
			change := job.KeyChange{New: &added}
			if len(keys) > 0 {
				keys[0].ReplacedBy = added.ID
				change.Changed = keys[:1]
			}
			return change, nil
		})
	})
	require.Equal(t, n, f.count("api_keys"))
	require.Equal(t, n-1, one[int](f, `SELECT count(*)::int FROM api_keys k JOIN api_keys r ON r.key_id = k.replaced_by
		WHERE r.key_id = 'k' || lpad((substr(k.key_id, 2)::int + 1)::text, 2, '0')`), "each replaced by its successor")
}

type watch struct {
	changed   chan string
	connected chan bool
	end       func()
}

func (f *fixture) watch(s *repo.Store) watch {
	w := watch{changed: make(chan string, 100), connected: make(chan bool, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.WatchKeys(ctx, func(id string) { w.changed <- id }, func(up bool) { w.connected <- up })
	}()
	w.end = func() { cancel(); <-ended }
	f.t.Cleanup(w.end)
	require.True(f.t, receive(f.t, w.connected))
	return w
}

func (f *fixture) requireReported(w watch) {
	c, id := f.newClient(), newID().String()
	f.addKey(c.ID, id)
	f.changeKey(c.ID, id, func(k *job.APIKey) { k.RevokedAt = &k.CreatedAt })
	require.Equal(f.t, id, receive(f.t, w.changed))
}

func receive[T any](t testing.TB, c <-chan T) T {
	select {
	case v := <-c:
		return v
	case <-time.After(testkit.Patience):
		require.Fail(t, "no value was received")
		panic("unreachable")
	}
}

func TestWatchKeysReportsChanges(t *testing.T) {
	f := setup(t)
	w := f.watch(repotest.OpenURL(t, f.url))
	c := f.newClient()
	f.addKey(c.ID, "new") // not announced, because no cache can contain it
	f.addKey(c.ID, "other")
	_ = f.store.ChangeKeys(f.ctx(), c.ID, func(_ job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		taken := key(c.ID, "new", now)
		return job.KeyChange{New: &taken, Changed: keys}, nil // rolled back
	})
	f.changeKey(c.ID, "other", func(k *job.APIKey) { k.ReplacedBy = "new" })
	require.Equal(t, "other", receive(t, w.changed))
	f.changeKey(c.ID, "new", func(k *job.APIKey) { k.RevokedAt = &k.CreatedAt })
	require.Equal(t, "new", receive(t, w.changed))
	require.Empty(t, w.changed)
	require.Empty(t, w.connected)
	w.end()
	require.False(t, receive(t, w.connected), "the watch has ended")
}

func TestWatchKeysSurvivesQuietTimes(t *testing.T) {
	const quiet = time.Second
	f := setup(t)
	w := f.watch(repotest.OpenURL(t, f.url, func(c *repo.Config) { c.Timeout, c.ApplicationName = quiet, "watcher" }))
	for range 2 { // without notifications, the watch pings over its connection and keeps it
		asked := one[time.Time](f, `SELECT clock_timestamp()`)
		f.await(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'watcher'
			AND query = '-- ping' AND state_change > $1)`, asked)
	}
	f.requireReported(w)
	require.Empty(t, w.connected, "the watch was never interrupted")

	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'watcher'`)
	require.False(t, receive(t, w.connected))
	require.True(t, receive(t, w.connected), "it connects again")
	f.requireReported(w)
}

func (f *fixture) useKey(id string) (exists bool) {
	exists = must(f.store.UseKey(f.ctx(), id))(f.t)
	return exists
}

func (f *fixture) ageClient(id job.ID, by time.Duration) {
	f.exec(`UPDATE clients SET created_at = created_at - $2::interval WHERE client_id = $1`, id.String(), by)
	f.exec(`UPDATE api_keys SET created_at = created_at - $2::interval WHERE client_id = $1`, id.String(), by)
}

func (f *fixture) clientExists(id job.ID) bool {
	return one[bool](f, `SELECT EXISTS (SELECT FROM clients WHERE client_id = $1)`, id.String())
}

func TestCleanRemovesClientsThatWereNeverUsed(t *testing.T) {
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
		f.clean(1) // each call reads only a few clients
	}
	for name, id := range clients {
		require.Equal(t, name != "no key" && name != "two keys", f.clientExists(id), name)
	}
	require.True(t, f.clientExists(f.client), "the client has a job")
	require.False(t, f.useKey("a"))
	require.Equal(t, 6, f.count("api_keys"))
}

// A request uses a key for the first time while its client is removed. Then the client stays, or the request fails.
func TestAClientThatBeginsWhileItIsRemoved(t *testing.T) {
	f := setup(t)
	const n = 40
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = f.newClient().ID
		f.addKey(ids[i], fmt.Sprint("key-", i))
		f.ageClient(ids[i], month+time.Minute)
	}
	begun, err := f.db.Begin(f.ctx()) // uses key-0; commits while the removal waits for the key's lock
	require.NoError(t, err)
	must(begun.Exec(f.ctx(), `UPDATE api_keys SET used_at = now() WHERE key_id = 'key-0'`))(t)
	cleaned := make(chan error)
	go func() {
		_, err := f.store.Clean(f.ctx(), 1000)
		cleaned <- err
	}()
	f.awaitBlocked(1)
	used := make(chan bool)
	go func() { // happens before the removal, or waits for it
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
