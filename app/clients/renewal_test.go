package clients

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/telemetry"
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
	key := k.issue(k.create(admin, k.newClient(), false))
	require.Empty(k.t, k.code(key.Secret), "it was used")
	apptest.Pass(testKeys.TTL)
	require.Equal(k.t, job.CodeTokenExpired, k.code(key.Secret))
	return key
}

func TestAnExpiredKeyIsRenewedWithinTheWindow(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.expired()
		apptest.Pass(testKeys.RenewWindow - time.Microsecond)
		next := k.issue(k.present(key))
		require.Equal(t, job.CodeTokenExpired, k.code(key.Secret), "for everything else it stays expired")
		require.Empty(t, k.code(next.Secret))

		late := k.expired()
		apptest.Pass(testKeys.RenewWindow)
		_, err := k.present(late)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))

		off := newKeyWorld(t, func(c *Config) { c.RenewWindow = 0 })
		_, err = off.present(off.expired())
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))
	})
}

func TestALostAnswerIsMendedByAnotherRenewal(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.expired()
		lost := k.issue(k.present(key))
		got := k.issue(k.present(key))
		apptest.Pass(testKeys.Overlap)
		require.Equal(t, job.CodeTokenExpired, k.code(lost.Secret), "the one that nobody has ends with the overlap")
		require.Empty(t, k.code(got.Secret))
		for _, old := range []job.IssuedKey{key, lost} {
			_, err := k.present(old)
			require.Equal(t, job.CodeForbidden, job.CodeOf(err), "a successor was used")
		}
		_, err := k.present(got)
		require.NoError(t, err)

		replaced := k.issue(k.create(admin, k.newClient(), false))
		unseen := k.issue(k.present(replaced)) // before its end
		apptest.Pass(testKeys.Overlap)
		k.issue(k.present(replaced))
		_ = unseen
	})
}

func TestWhatARotationOrARevocationEndedIsNotRenewed(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		rotated := k.issue(k.create(admin, k.newClient(), false))
		k.issue(k.create(callerOf(rotated), rotated.ClientID, true))
		apptest.Pass(testKeys.Overlap)
		_, err := k.present(rotated)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))

		older := k.expired()
		k.issue(k.create(admin, older.ClientID, true))
		_, err = k.present(older)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err), "a rotation ends those that had expired before, too")

		unknown := k.expired()
		k.issue(k.present(unknown))
		k.fake.keys[0].IssuedBy = "" // as the version before stores it
		_, err = k.present(unknown)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))

		revoked := k.expired()
		require.NoError(t, k.revoke(admin, revoked.ClientID, revoked.ID))
		_, err = k.present(revoked)
		require.Equal(t, job.CodeKeyDisabled, job.CodeOf(err))

		other, key := k.newClient(), k.expired()
		_, err = k.renew(job.Caller{ClientID: key.ClientID, KeyID: key.ID, Expired: true}, other)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))
	})
}

func TestTenRenewalsOfAnExpiredKeyAtOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.expired()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := k.present(key); err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		apptest.Pass(testKeys.Overlap)
		require.Len(t, usableKeys(k.fake.keys, time.Now()), 1, "the last one")
	})
}

func TestAFirstUseIsWrittenOnceAndBeforeItCounts(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		defer k.w.Background(k.WatchKeys)()
		key := k.issue(k.create(admin, k.newClient(), false))
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
			require.Empty(t, k.code(key.Secret))
		}
		require.NotNil(t, k.fake.keys[0].UsedAt)
		require.Equal(t, written, k.fake.written, "later uses write nothing")
	})
}

func TestAKeyIsRemovedBeforeItsFirstUse(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		defer k.w.Background(k.WatchKeys)()
		key := k.issue(k.create(admin, k.newClient(), false))
		k.fake.useErr = apptest.ErrStorage // the process remembers the key, which is unused
		_, err := k.Authenticate(context.Background(), key.Secret)
		require.ErrorIs(t, err, apptest.ErrStorage)
		k.fake.useErr, k.fake.keys = nil, nil
		for range 2 {
			require.Equal(t, job.CodeInvalidCredentials, k.code(key.Secret))
		}
		require.Equal(t, 1, k.fake.written, "it is remembered no longer")
	})
}

func TestLinesOfKeysHaveTheirRequest(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		as := func(request string) context.Context { return telemetry.WithRequest(context.Background(), request) }
		c, err := k.CreateClient(as("create_client"), admin)
		require.NoError(t, err)
		key := k.issue(k.CreateKey(as("create_key"), admin, c.ID, false, job.ScopeAll))
		k.issue(k.RenewKey(as("renew_key"), callerOf(key), c.ID))
		require.NoError(t, k.RevokeKey(as("revoke_key"), admin, c.ID, key.ID))
		for _, action := range []string{"create_client", "create_key", "renew_key", "revoke_key"} {
			require.Len(t, k.w.Log.Lines(t, map[string]any{"action": action}), 1, action)
			require.Len(t, k.w.Log.Lines(t, map[string]any{"action": action, "request_id": action, "client_id": c.ID.String()}), 1, action)
		}
	})
}

// Who has a leaked key cannot take the client away from its owner after the owner
// has used a newer one.
func TestAReplacedKeyChangesNothingOnceItsSuccessorWasUsed(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		leaked := k.issue(k.create(admin, k.newClient(), false))
		lost := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		mended := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		require.Empty(t, k.code(mended.Secret), "the owner uses it")
		require.Empty(t, k.code(leaked.Secret), "the overlap goes on")
		for _, err := range []error{
			second(k.renew(callerOf(leaked), leaked.ClientID)),
			second(k.create(callerOf(leaked), leaked.ClientID, true)),
			second(k.renew(callerOf(lost), leaked.ClientID)),
			k.revoke(callerOf(leaked), leaked.ClientID, mended.ID),
		} {
			require.Equal(t, job.CodeForbidden, job.CodeOf(err))
		}
		require.Empty(t, k.code(mended.Secret))
		k.issue(k.renew(callerOf(mended), leaked.ClientID))
		require.NoError(t, k.revoke(callerOf(leaked), leaked.ClientID, leaked.ID), "it may end itself")
	})
}

func TestRevokeEndsWhatTheKeyMade(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		leaked := k.issue(k.create(admin, k.newClient(), false))
		thiefs := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		deeper := k.issue(k.renew(callerOf(thiefs), leaked.ClientID))
		operators := k.issue(k.create(admin, leaked.ClientID, true))
		require.NoError(t, k.revoke(admin, leaked.ClientID, leaked.ID))
		for _, key := range []job.IssuedKey{leaked, thiefs, deeper} {
			require.Equal(t, job.CodeKeyDisabled, k.code(key.Secret))
		}
		require.Empty(t, k.code(operators.Secret), "the leaked key did not make it")

		owners := k.issue(k.renew(callerOf(operators), leaked.ClientID))
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, operators.ID))
		require.Equal(t, job.CodeKeyDisabled, k.code(operators.Secret))
		require.Empty(t, k.code(owners.Secret), "the key that asks is spared")
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, owners.ID))
		require.Equal(t, job.CodeKeyDisabled, k.code(owners.Secret))
	})
}

func TestKeysOfALesserScopeStandBeside(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		scoped := func(caller job.Caller, client job.ID, scope job.Scope) (job.IssuedKey, error) {
			return k.CreateKey(context.Background(), caller, client, false, scope)
		}
		client := k.newClient()
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(second(scoped(anonymous, client, job.ScopeRead))), "the first key may do all")
		all := k.issue(k.create(anonymous, client, false))
		read := k.issue(scoped(callerOf(all), client, job.ScopeRead))
		submit := k.issue(scoped(callerOf(all), client, job.ScopeSubmit))
		caller, err := k.Authenticate(context.Background(), read.Secret)
		require.NoError(t, err)
		require.Equal(t, job.ScopeRead, caller.Scope)

		k.issue(k.renew(callerOf(all), client)) // lost: the use of a lesser key says nothing about it
		newest := k.issue(k.renew(callerOf(all), client))
		apptest.Pass(testKeys.Overlap)
		require.Equal(t, job.CodeTokenExpired, k.code(all.Secret))
		for _, key := range []job.IssuedKey{read, submit, newest} {
			require.Empty(t, k.code(key.Secret), "they were not replaced")
		}
		require.NoError(t, k.revoke(callerOf(newest), client, all.ID))
		require.Equal(t, job.CodeKeyDisabled, k.code(read.Secret), "the revoked key made it")
	})
}
