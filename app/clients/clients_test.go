package clients

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// Promise: contract 5, 3.2
func TestCreateClient(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		a := apptest.Must(k.CreateClient(context.Background(), anonymous))(t)
		require.EqualValues(t, 4, a.ID[6]>>4, "a version 4 UUID")

		closed := k.elsewhere(func(c *Config) { c.OpenRegistration = false })
		k.refused(job.CodeInvalidCredentials, second(closed.CreateClient(context.Background(), anonymous)))
		k.refused(job.CodeForbidden, second(closed.CreateClient(context.Background(), job.Caller{ClientID: apptest.ClientA})))
		client := closed.newClient()
		k.refused(job.CodeInvalidCredentials, second(closed.create(anonymous, client, false)))
		closed.issue(closed.create(admin, client, false))
	})
}

// Promise: contract 8a
func TestFirstKeyNeedsNoCredentialsOnceAndForAWhile(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		client := k.newClient()
		k.refused(job.CodeInvalidCredentials, second(k.scoped(anonymous, client, false, job.ScopeRead)), "the first key has full scope")
		key := k.issue(k.create(anonymous, client, false))
		require.Equal(t, client, key.ClientID)
		require.Equal(t, testKeys.TTL, key.ExpiresAt.Sub(key.CreatedAt))
		caller := apptest.Must(k.Authenticate(context.Background(), key.Secret))(t)
		require.Equal(t, callerOf(key), caller)
		for _, rotate := range []bool{false, true} {
			k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, client, rotate)), "only once")
		}
		require.NoError(t, k.revoke(admin, client, key.ID))
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, client, false)), "also after a revocation")

		inTime, late := k.newClient(), k.newClient()
		k.pass(registrationWindow)
		k.issue(k.create(anonymous, inTime, false))
		k.pass(time.Microsecond)
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, late, false)), "the window is over")
		k.issue(k.create(admin, late, false))
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, app.NewID(), false)), "unknown clients get the same error")
	})
}

func TestKeyEndedDuringRequestCannotChangeKeys(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		revoked, expired := k.newKey(), k.newKey()
		let := func(key job.IssuedKey) job.Caller {
			return apptest.Must(k.Authenticate(context.Background(), key.Secret))(t)
		}
		early, late := let(revoked), let(expired)
		require.NoError(t, k.revoke(admin, revoked.ClientID, revoked.ID))
		k.pass(testKeys.TTL)
		for caller, code := range map[job.Caller]job.Code{early: job.CodeKeyDisabled, late: job.CodeTokenExpired} {
			k.refused(code, second(k.create(caller, caller.ClientID, true)))
			k.refused(code, second(k.create(caller, caller.ClientID, false)))
			k.refused(code, second(k.renew(caller, caller.ClientID)))
			k.refused(code, k.revoke(caller, caller.ClientID, caller.KeyID))
		}
		require.Len(t, append(k.keys(revoked.ClientID), k.keys(expired.ClientID)...), 2)
	})
}

// Promise: contract 7, 8
func TestRepeatedCreationReturnsMetadataOnly(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		first := k.newKey()
		again, err := k.create(callerOf(first), first.ClientID, false)
		require.NoError(t, err)
		require.Equal(t, job.IssuedKey{APIKey: first.APIKey}, again)
		require.Len(t, k.keys(first.ClientID), 1)

		second := k.issue(k.create(callerOf(first), first.ClientID, true))
		again = apptest.Must(k.create(admin, first.ClientID, false))(t)
		require.Equal(t, second.ID, again.ID, "the current key, not the replaced one")
	})
}

func TestReplacedKeyStaysValidForOverlap(t *testing.T) {
	for name, replace := range map[string]func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error){
		"rotate": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.create(callerOf(old), old.ClientID, true)
		},
		"renew": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.renew(callerOf(old), old.ClientID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withKeys(t, func(t *testing.T, k *keyWorld) {
				k.memory.connected(true) // keys are cached from now on
				old := k.newKey()
				k.valid(old)
				key := k.issue(replace(k, old))
				require.NotEqual(t, old.ID, key.ID)
				k.pass(overlap - 2*time.Microsecond)
				k.valid(old)

				lost := k.issue(replace(k, old)) // the response was lost, so the client replaces the old key again
				stored := apptest.Must(k.store.Key(context.Background(), old.ID))(t)
				require.Equal(t, key.ID, stored.ReplacedBy, "the first replacement")
				k.pass(time.Microsecond)
				k.ended(job.CodeTokenExpired, old) // the second replacement does not change the old key's expiry
				k.valid(key, lost)
				k.pass(overlap)
				k.ended(job.CodeTokenExpired, key)
				k.valid(lost)

				k.pass(lost.ExpiresAt.Sub(k.store.Now()) - time.Second)
				k.issue(replace(k, lost))
				k.pass(time.Second)
				k.ended(job.CodeTokenExpired, lost) // a replacement never extends the old key
			})
		})
	}
}

// Promise: contract 14, 15
func TestRenewNeedsAKeyToRenew(t *testing.T) {
	withKeys(t, func(_ *testing.T, k *keyWorld) {
		client := k.newClient()
		k.refused(job.CodeInvalidCredentials, second(k.renew(anonymous, client)))
		k.refused(job.CodeConflict, second(k.renew(admin, client)))
		k.refused(job.CodeClientNotFound, second(k.renew(admin, app.NewID())), "unknown client")
		key := k.issue(k.create(admin, client, false))
		k.pass(testKeys.TTL)
		k.refused(job.CodeConflict, second(k.renew(admin, client)), "the key has expired")
		k.ended(job.CodeTokenExpired, key)
	})
}

// Promise: contract 14, 15
// Promise: contract 15a
func TestRevoke(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.memory.connected(true) // from now on, keys are cached
		key, other := k.newKey(), k.newKey()
		k.valid(key)
		k.refused(job.CodeInvalidCredentials, k.revoke(anonymous, key.ClientID, key.ID))
		k.refused(job.CodeClientNotFound, k.revoke(callerOf(other), key.ClientID, key.ID))
		k.refused(job.CodeRequestNotFound, k.revoke(callerOf(other), other.ClientID, key.ID), "key of another client")
		k.refused(job.CodeClientNotFound, k.revoke(admin, app.NewID(), key.ID))
		k.valid(key)

		require.NoError(t, k.revoke(callerOf(key), key.ClientID, key.ID))
		k.ended(job.CodeKeyDisabled, key)
		at := *k.keys(key.ClientID)[0].RevokedAt
		k.pass(time.Minute)
		require.NoError(t, k.revoke(admin, key.ClientID, key.ID), "repeated revocation")
		require.Equal(t, at, *k.keys(key.ClientID)[0].RevokedAt)
		require.Len(t, k.Log.Lines(t, map[string]any{"action": "revoke_key", "new": true}), 1)

		k.pass(testKeys.TTL)
		k.ended(job.CodeKeyDisabled, key) // revoked takes precedence over expired
	})
}

func TestClientHasAtMostTenValidKeys(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		keys := []job.IssuedKey{k.newKey()}
		client := keys[0].ClientID
		for range maxKeys - 1 {
			keys = append(keys, k.issue(k.renew(admin, client)))
		}
		k.valid(keys...)
		k.refused(job.CodeConflict, second(k.renew(admin, client)))
		k.refused(job.CodeConflict, second(k.create(admin, client, true)))
		require.NoError(t, k.revoke(admin, client, keys[3].ID))
		k.issue(k.renew(admin, client))

		read := func() (job.IssuedKey, error) { return k.scoped(admin, client, false, job.ScopeRead) }
		for range maxKeys {
			k.issue(read())
		}
		k.refused(job.CodeConflict, second(read()))
		require.NoError(t, k.revoke(admin, client, keys[4].ID))
		k.issue(k.create(admin, client, true)) // keys with a lesser scope have their own limit
	})
}

func TestOtherClientsKeysDoNotExist(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		client := k.newClient()
		other := job.Caller{ClientID: k.newClient()}
		for what, err := range map[string]error{
			"create":  second(k.create(other, client, false)),
			"rotate":  second(k.create(other, client, true)),
			"renew":   second(k.renew(other, client)),
			"unknown": second(k.create(other, app.NewID(), false)),
		} {
			require.Equal(t, errNoClient, err, what)
		}
		require.Empty(t, k.keys(client))
	})
}
