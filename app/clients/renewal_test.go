package clients

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func (k *keyWorld) present(key job.IssuedKey) (job.IssuedKey, error) {
	caller, err := k.Authenticate(context.Background(), key.Secret)
	if err != nil && !caller.Expired {
		return job.IssuedKey{}, err
	}
	return k.renew(caller, key.ClientID)
}

func (k *keyWorld) expired() job.IssuedKey {
	key := k.newKey()
	require.Empty(k.t, k.code(key.Secret), "the key is used")
	k.pass(testKeys.TTL)
	require.Equal(k.t, job.CodeTokenExpired, k.code(key.Secret))
	return key
}

// Promise: contract 14, 15
func TestExpiredKeyIsRenewedWithinWindow(t *testing.T) {
	withKeys(t, func(_ *testing.T, k *keyWorld) {
		key := k.expired()
		k.pass(renewWindow - 2*time.Microsecond)
		next := k.issue(k.present(key))
		k.ended(job.CodeTokenExpired, key)
		k.valid(next)

		late := k.expired()
		k.pass(renewWindow)
		k.refused(job.CodeTokenExpired, second(k.present(late)))
	})
}

func TestLostAnswerIsRepairedByNextRenewal(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.expired()
		lost := k.issue(k.present(key))
		got := k.issue(k.present(key))
		k.pass(overlap)
		k.ended(job.CodeTokenExpired, lost) // the second renewal replaced this key
		k.valid(got)
		for _, old := range []job.IssuedKey{key, lost} {
			k.refused(job.CodeForbidden, second(k.present(old)), "a successor was used")
		}
		require.NoError(t, second(k.present(got)))
	})
}

func TestKeyEndedByRotationOrRevocationIsNotRenewed(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		rotated := k.newKey()
		k.issue(k.create(callerOf(rotated), rotated.ClientID, true))
		k.pass(overlap)
		k.refused(job.CodeTokenExpired, second(k.present(rotated)))

		older := k.expired()
		k.issue(k.create(admin, older.ClientID, true))
		k.refused(job.CodeTokenExpired, second(k.present(older)), "a rotation also ends expired keys")

		revoked := k.expired()
		require.NoError(t, k.revoke(admin, revoked.ClientID, revoked.ID))
		k.refused(job.CodeKeyDisabled, second(k.present(revoked)))

		other, key := k.newClient(), k.expired()
		k.refused(job.CodeTokenExpired, second(k.renew(job.Caller{ClientID: key.ClientID, KeyID: key.ID, Expired: true}, other)))
	})
}

func TestFirstUseIsStoredOnceBeforeKeyIsAccepted(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.newKey()
		k.storageFailed(second(k.cutOff(key).Authenticate(context.Background(), key.Secret)))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = k.Authenticate(context.Background(), key.Secret) })
		}
		all.Wait()
		used := k.keys(key.ClientID)[0].UsedAt
		require.NotNil(t, used)
		k.cutOff(key).valid(key) // the first use is stored already, so no write is needed
	})
}

func TestKeyCanBeRemovedBeforeFirstUse(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.memory.connected(true)
		key := job.IssuedKey{APIKey: job.APIKey{ExpiresAt: k.store.Now().Add(time.Hour)}}
		key.Secret, key.ID = newAPIKey()
		key.SecretHash = hashAPIKey(key.Secret)
		_, _, generation := k.memory.recall(key.ID)
		k.memory.remember(key.APIKey, generation)
		k.ended(job.CodeInvalidCredentials, key)
		require.Empty(t, k.memory.known, "the key is dropped from the cache")
	})
}

// After the owner has used a newer key, a leaked key cannot take over the client.
func TestReplacedKeyCannotChangeKeysAfterUseOfSuccessor(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		leaked := k.newKey()
		lost := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		mended := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		k.valid(mended)
		k.valid(leaked)
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
		require.NoError(t, k.revoke(callerOf(leaked), leaked.ClientID, leaked.ID), "a key can revoke itself")
	})
}

func TestRevokeEndsKeysCreatedByKey(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		leaked := k.newKey()
		thiefs := k.issue(k.renew(callerOf(leaked), leaked.ClientID))
		deeper := k.issue(k.renew(callerOf(thiefs), leaked.ClientID))
		operators := k.issue(k.create(admin, leaked.ClientID, true))
		require.NoError(t, k.revoke(admin, leaked.ClientID, leaked.ID))
		k.ended(job.CodeKeyDisabled, leaked, thiefs, deeper)
		k.valid(operators) // not created by the leaked key

		owners := k.issue(k.renew(callerOf(operators), leaked.ClientID))
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, operators.ID))
		k.ended(job.CodeKeyDisabled, operators)
		k.valid(owners)
		require.NoError(t, k.revoke(callerOf(owners), leaked.ClientID, owners.ID))
		k.ended(job.CodeKeyDisabled, owners)
	})
}

func TestKeysOfLesserScopeReplaceNothing(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		scoped := func(caller job.Caller, client job.ID, scope job.Scope) (job.IssuedKey, error) {
			return k.scoped(caller, client, false, scope)
		}
		client := k.newClient()
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(second(scoped(anonymous, client, job.ScopeRead))), "first keys have full scope")
		all := k.issue(k.create(anonymous, client, false))
		read := k.issue(scoped(callerOf(all), client, job.ScopeRead))
		submit := k.issue(scoped(callerOf(all), client, job.ScopeSubmit))
		caller := apptest.Must(k.Authenticate(context.Background(), read.Secret))(t)
		require.Equal(t, job.ScopeRead, caller.Scope)

		k.issue(k.renew(callerOf(all), client)) // the client never got this key; using a lesser key does not count as a use of it
		newest := k.issue(k.renew(callerOf(all), client))
		k.pass(overlap)
		k.ended(job.CodeTokenExpired, all)
		k.valid(read, submit, newest)
		require.NoError(t, k.revoke(callerOf(newest), client, all.ID))
		k.ended(job.CodeKeyDisabled, read) // created by the revoked key
	})
}
