package repo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// decision is what ChangeKeys is given.
type decision = func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)

func (f *fixture) newClient() job.Client {
	f.t.Helper()
	c, err := f.store.InsertClient(f.ctx(), newID())
	require.NoError(f.t, err)
	return c
}

// key is a fresh key of a client, created at the given moment.
func key(client job.ID, id string, now time.Time) job.APIKey {
	now = now.Truncate(time.Microsecond)
	return job.APIKey{ID: id, ClientID: client, SecretHash: [32]byte{1, 2, 3}, CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		Scope: job.ScopeSubmit, MadeBy: "maker"}
}

func (f *fixture) addKey(client job.ID, id string) job.APIKey {
	f.t.Helper()
	var added job.APIKey
	require.NoError(f.t, f.store.ChangeKeys(f.ctx(), client, func(_ job.Client, now time.Time, _ []job.APIKey) (job.KeyChange, error) {
		added = key(client, id, now)
		return job.KeyChange{New: &added}, nil
	}))
	return added
}

func (f *fixture) changeKey(s *repo.Store, client job.ID, id string, change func(k *job.APIKey)) {
	f.t.Helper()
	require.NoError(f.t, s.ChangeKeys(f.ctx(), client, func(_ job.Client, _ time.Time, keys []job.APIKey) (job.KeyChange, error) {
		for _, k := range keys {
			if k.ID == id {
				change(&k)
				return job.KeyChange{Changed: []job.APIKey{k}}, nil
			}
		}
		return job.KeyChange{}, errors.New("no such key")
	}))
}

func TestInsertClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	c := f.newClient()
	require.WithinDuration(t, time.Now(), c.CreatedAt, time.Minute)
	_, err := f.store.InsertClient(f.ctx(), c.ID)
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
	_, err = f.store.InsertClient(f.ctx(), job.ID{})
	require.Error(t, err)
}

func TestKeysAreStoredAndRead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	c := f.newClient()
	none, err := f.store.Key(f.ctx(), "k1")
	require.NoError(t, err)
	require.Nil(t, none)

	first, second := f.addKey(c.ID, "k1"), f.addKey(c.ID, "k2")
	f.addKey(f.newClient().ID, "another client's")
	got, err := f.store.Key(f.ctx(), "k1")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&first, got))

	revoked := first.CreatedAt.Add(time.Minute)
	f.changeKey(f.store, c.ID, "k1", func(k *job.APIKey) {
		k.RevokedAt, k.ReplacedBy, k.ExpiresAt = &revoked, "k2", revoked.Add(time.Second)
	})
	require.NoError(t, f.store.ChangeKeys(f.ctx(), c.ID, func(got job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		first.RevokedAt, first.ReplacedBy, first.ExpiresAt = &revoked, "k2", revoked.Add(time.Second)
		require.Empty(t, cmp.Diff([]job.APIKey{second, first}, keys), "all keys of the client, newest first")
		require.Equal(t, c, got)
		require.WithinDuration(t, time.Now(), now, time.Minute)
		return job.KeyChange{}, nil
	}))
}

func TestChangeKeysOfAnUnknownClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	refusal := job.Errorf(job.CodeClientNotFound, "No client.")
	err := f.store.ChangeKeys(f.ctx(), newID(), func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		require.True(t, c.ID.IsZero())
		require.True(t, now.IsZero())
		require.Empty(t, keys)
		return job.KeyChange{}, refusal
	})
	require.Same(t, refusal, err, "a decision's error comes back as it is")
	require.Zero(t, f.storageErrors())
}

func TestChangeKeysIsAllOrNothing(t *testing.T) {
	t.Parallel()
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
		got, err := f.store.Key(f.ctx(), "k1")
		require.NoError(t, err)
		require.Equal(t, &k1, got, name)
		require.Equal(t, 1, f.count("api_keys"), name)
	}
}

func TestConcurrentChangesOfAClientsKeysTakeTurns(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	c := f.newClient()
	const n = 30
	errs := make([]error, n)
	inParallel(n, func(i int) {
		errs[i] = stores[i%2].ChangeKeys(f.ctx(), c.ID, func(_ job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
			added := key(c.ID, fmt.Sprintf("k%02d", len(keys)), now) // one that saw the same keys would take the same id
			change := job.KeyChange{New: &added}
			if len(keys) > 0 {
				keys[0].ReplacedBy = added.ID
				change.Changed = keys[:1]
			}
			return change, nil
		})
	})
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, n, f.count("api_keys"))
	require.Equal(t, n-1, one[int](f, `SELECT count(*)::int FROM api_keys k JOIN api_keys r ON r.key_id = k.replaced_by
		WHERE r.key_id = 'k' || lpad((substr(k.key_id, 2)::int + 1)::text, 2, '0')`), "each replaced by its successor")
}

// watch runs WatchKeys and hands on what it says.
type watch struct {
	changed   chan string
	connected chan bool
}

func (f *fixture) watch(s *repo.Store) watch {
	f.t.Helper()
	w := watch{make(chan string, 100), make(chan bool, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.WatchKeys(ctx, func(id string) { w.changed <- id }, func(up bool) { w.connected <- up })
	}()
	f.t.Cleanup(func() { cancel(); <-ended })
	require.True(f.t, receive(f.t, w.connected))
	return w
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.Fail(t, "nothing came")
		panic("unreachable")
	}
}

func TestWatchKeysTellsOfChanges(t *testing.T) {
	t.Parallel()
	f := setup(t)
	w := f.watch(repotest.OpenURL(t, f.url))
	c := f.newClient()
	f.addKey(c.ID, "new") // nobody can believe anything of a key that was not there
	f.addKey(c.ID, "other")
	_ = f.store.ChangeKeys(f.ctx(), c.ID, func(_ job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		taken := key(c.ID, "new", now)
		return job.KeyChange{New: &taken, Changed: keys}, nil // rolled back
	})
	f.changeKey(f.store, c.ID, "other", func(k *job.APIKey) { k.ReplacedBy = "new" })
	require.Equal(t, "other", receive(t, w.changed))
	f.changeKey(f.store, c.ID, "new", func(k *job.APIKey) { k.RevokedAt = &k.CreatedAt })
	require.Equal(t, "new", receive(t, w.changed))
	require.Empty(t, w.changed)
	require.Empty(t, w.connected)
}

func TestWatchKeysSurvivesQuietTimes(t *testing.T) {
	t.Parallel()
	const quiet = time.Second
	f := setup(t)
	w := f.watch(repotest.OpenURL(t, f.url, func(c *repo.Config) { c.Timeout, c.ApplicationName = quiet, "watcher" }))
	for range 2 { // each round trip keeps the connection
		asked := one[time.Time](f, `SELECT clock_timestamp()`)
		f.await(`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'watcher'
			AND query = '-- ping' AND state_change > $1)`, asked)
	}
	c := f.newClient()
	f.addKey(c.ID, "k")
	f.changeKey(f.store, c.ID, "k", func(k *job.APIKey) { k.RevokedAt = &k.CreatedAt })
	require.Equal(t, "k", receive(t, w.changed))
	require.Empty(t, w.connected, "it was never away")
}

func TestWatchKeysReconnects(t *testing.T) {
	t.Parallel()
	f := setup(t)
	w := f.watch(repotest.OpenURL(t, f.url, func(c *repo.Config) { c.Timeout, c.ApplicationName = 2*time.Second, "watcher" }))
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'watcher'`)
	require.False(t, receive(t, w.connected))
	for !receive(t, w.connected) { // it may have tried in vain
	}
	c := f.newClient()
	f.addKey(c.ID, "k")
	f.changeKey(f.store, c.ID, "k", func(k *job.APIKey) { k.RevokedAt = &k.CreatedAt })
	require.Equal(t, "k", receive(t, w.changed))
}

func TestWatchKeysEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan bool, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.store.WatchKeys(ctx, func(string) {}, func(up bool) { said <- up })
	}()
	require.True(t, receive(t, said))
	cancel()
	receive(t, ended)
	require.False(t, receive(t, said), "from here on nothing may be trusted")
}
