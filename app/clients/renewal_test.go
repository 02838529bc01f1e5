package clients

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// present is a renewal with a key, as HTTP asks for it.
func (k *keyWorld) present(key job.IssuedKey) (job.IssuedKey, error) {
	caller, err := k.Authenticate(context.Background(), key.Secret)
	if err != nil && !caller.Expired {
		return job.IssuedKey{}, err
	}
	return k.renew(caller, key.ClientID)
}

// expired is a client's key that has just expired.
func (k *keyWorld) expired() job.IssuedKey {
	key := k.newKey()
	require.Empty(k.t, k.code(key.Secret), "it was used")
	apptest.Pass(testKeys.TTL)
	require.Equal(k.t, job.CodeTokenExpired, k.code(key.Secret))
	return key
}

// Promise: contract 14, 15
func TestAnExpiredKeyIsRenewedWithinTheWindow(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.expired()
		apptest.Pass(testKeys.RenewWindow - time.Microsecond)
		next := k.issue(k.present(key))
		k.ended(job.CodeTokenExpired, key) // for everything else it stays expired
		k.valid(next)

		late := k.expired()
		apptest.Pass(testKeys.RenewWindow)
		k.refused(job.CodeTokenExpired, second(k.present(late)))

		off := newKeyWorld(t, func(c *Config) { c.RenewWindow = 0 })
		k.refused(job.CodeTokenExpired, second(off.present(off.expired())))
	})
}

func TestALostAnswerIsMendedByAnotherRenewal(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.expired()
		lost := k.issue(k.present(key))
		got := k.issue(k.present(key))
		apptest.Pass(testKeys.Overlap)
		k.ended(job.CodeTokenExpired, lost) // the one that nobody has ends with the overlap
		k.valid(got)
		for _, old := range []job.IssuedKey{key, lost} {
			k.refused(job.CodeForbidden, second(k.present(old)), "a successor was used")
		}
		require.NoError(t, second(k.present(got)))

		replaced := k.newKey()
		unseen := k.issue(k.present(replaced)) // before its end
		apptest.Pass(testKeys.Overlap)
		k.issue(k.present(replaced))
		_ = unseen
	})
}

func TestWhatARotationOrARevocationEndedIsNotRenewed(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		rotated := k.newKey()
		k.issue(k.create(callerOf(rotated), rotated.ClientID, true))
		apptest.Pass(testKeys.Overlap)
		k.refused(job.CodeTokenExpired, second(k.present(rotated)))

		older := k.expired()
		k.issue(k.create(admin, older.ClientID, true))
		k.refused(job.CodeTokenExpired, second(k.present(older)), "a rotation ends those that had expired before, too")

		revoked := k.expired()
		require.NoError(t, k.revoke(admin, revoked.ClientID, revoked.ID))
		k.refused(job.CodeKeyDisabled, second(k.present(revoked)))

		other, key := k.newClient(), k.expired()
		k.refused(job.CodeTokenExpired, second(k.renew(job.Caller{ClientID: key.ClientID, KeyID: key.ID, Expired: true}, other)))
	})
}

func TestAFirstUseIsWrittenOnceAndBeforeItCounts(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		defer k.Background(k.WatchKeys)()
		key := k.newKey()
		k.fake.useErr = apptest.ErrStorage
		_, err := k.Authenticate(context.Background(), key.Secret)
		require.ErrorIs(t, err, apptest.ErrStorage, "a use that nobody remembers is none")
		k.fake.useErr = nil
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = k.Authenticate(context.Background(), key.Secret) })
		}
		all.Wait()
		written := k.fake.written
		for range 10 {
			k.valid(key)
		}
		require.NotNil(t, k.fake.keys[0].UsedAt)
		require.Equal(t, written, k.fake.written, "later uses write nothing")
	})
}

func TestAKeyIsRemovedBeforeItsFirstUse(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		defer k.Background(k.WatchKeys)()
		key := k.newKey()
		k.fake.useErr = apptest.ErrStorage // the process remembers the key, which is unused
		require.ErrorIs(t, second(k.Authenticate(context.Background(), key.Secret)), apptest.ErrStorage)
		k.fake.useErr, k.fake.keys = nil, nil
		for range 2 {
			k.ended(job.CodeInvalidCredentials, key)
		}
		require.Equal(t, 1, k.fake.written, "it is remembered no longer")
	})
}

// Who has a leaked key cannot take the client away from its owner after the owner
// has used a newer one.
func TestAReplacedKeyChangesNothingOnceItsSuccessorWasUsed(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		leaked := k.newKey()
		lost := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		mended := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		k.valid(mended) // the owner uses it
		k.valid(leaked) // the overlap goes on
		for _, err := range []error{
			second(k.renew(callerOf(leaked), leaked.ClientID)),
			second(k.create(callerOf(leaked), leaked.ClientID, true)),
			second(k.renew(callerOf(lost), leaked.ClientID)),
			k.revoke(callerOf(leaked), leaked.ClientID, mended.ID),
		} {
			require.Equal(t, job.CodeForbidden, job.CodeOf(err))
		}
		k.valid(mended)
		k.issue(k.renew(callerOf(mended), leaked.ClientID))
		require.NoError(t, k.revoke(callerOf(leaked), leaked.ClientID, leaked.ID), "it may end itself")
	})
}

func TestRevokeEndsWhatTheKeyMade(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.Background(k.WatchKeys)
		leaked := k.newKey()
		thiefs := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		deeper := k.issue(k.renew(callerOf(thiefs), leaked.ClientID))
		operators := k.issue(k.create(admin, leaked.ClientID, true))
		require.NoError(t, k.revoke(admin, leaked.ClientID, leaked.ID))
		k.ended(job.CodeKeyDisabled, leaked, thiefs, deeper)
		k.valid(operators) // the leaked key did not make it

		owners := k.issue(k.renew(callerOf(operators), leaked.ClientID))
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, operators.ID))
		k.ended(job.CodeKeyDisabled, operators)
		k.valid(owners) // the key that asks is spared
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, owners.ID))
		k.ended(job.CodeKeyDisabled, owners)
	})
}

func TestKeysOfALesserScopeStandBeside(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		scoped := func(caller job.Caller, client job.ID, scope job.Scope) (job.IssuedKey, error) {
			return k.CreateKey(context.Background(), caller, client, false, scope)
		}
		client := k.newClient()
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(second(scoped(anonymous, client, job.ScopeRead))), "the first key may do all")
		all := k.issue(k.create(anonymous, client, false))
		read := k.issue(scoped(callerOf(all), client, job.ScopeRead))
		submit := k.issue(scoped(callerOf(all), client, job.ScopeSubmit))
		caller := apptest.Must(k.Authenticate(context.Background(), read.Secret))(t)
		require.Equal(t, job.ScopeRead, caller.Scope)

		k.issue(k.renew(callerOf(all), client)) // lost: the use of a lesser key says nothing about it
		newest := k.issue(k.renew(callerOf(all), client))
		apptest.Pass(testKeys.Overlap)
		k.ended(job.CodeTokenExpired, all)
		k.valid(read, submit, newest) // they were not replaced
		require.NoError(t, k.revoke(callerOf(newest), client, all.ID))
		k.ended(job.CodeKeyDisabled, read) // the revoked key made it
	})
}

// fakeKeys stores clients and keys, and tells of every change once somebody
// watches.
type fakeKeys struct {
	mu      sync.Mutex
	clients map[job.ID]job.Client
	keys    []job.APIKey // newest first
	lookups int
	written int // calls of UseKey
	useErr  error
	err     error
	onKey   func() // after a look-up, before its answer

	changed   func(string)
	connected func(bool)
}

func newFakeKeys() *fakeKeys { return &fakeKeys{clients: map[job.ID]job.Client{}} }

func (f *fakeKeys) InsertClient(_ context.Context, id job.ID) (job.Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return job.Client{}, f.err
	}
	f.clients[id] = job.Client{ID: id, CreatedAt: time.Now()}
	return f.clients[id], nil
}

func (f *fakeKeys) NameClient(_ context.Context, id job.ID, _ string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, exists := f.clients[id]
	return exists, f.err
}

func (f *fakeKeys) Key(_ context.Context, id string) (*job.APIKey, error) {
	f.mu.Lock()
	f.lookups++
	err, found, then := f.err, (*job.APIKey)(nil), f.onKey
	for _, k := range f.keys {
		if k.ID == id {
			found = &k
		}
	}
	f.mu.Unlock()
	if then != nil {
		then()
	}
	return found, err
}

func (f *fakeKeys) UseKey(_ context.Context, id string) (exists bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.useErr != nil {
		return false, f.useErr
	}
	f.written++
	for i := range f.keys {
		if f.keys[i].ID != id {
			continue
		}
		exists = true
		if now := time.Now(); f.keys[i].UsedAt == nil {
			f.keys[i].UsedAt = &now
		}
	}
	return exists, nil
}

func (f *fakeKeys) ChangeKeys(_ context.Context, client job.ID,
	decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	var own []job.APIKey
	for _, k := range f.keys {
		if k.ClientID == client {
			own = append(own, k)
		}
	}
	change, err := decide(f.clients[client], time.Now(), own)
	if err != nil {
		return err
	}
	for _, k := range change.Changed {
		f.keys[slices.IndexFunc(f.keys, func(old job.APIKey) bool { return old.ID == k.ID })] = k
		if f.changed != nil {
			f.changed(k.ID)
		}
	}
	if change.New != nil {
		f.keys = slices.Insert(f.keys, 0, *change.New)
	}
	return nil
}

func (f *fakeKeys) WatchKeys(ctx context.Context, changed func(string), connected func(bool)) {
	f.mu.Lock()
	f.changed, f.connected = changed, connected
	f.mu.Unlock()
	connected(true)
	<-ctx.Done()
	connected(false)
}
