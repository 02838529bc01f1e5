package clients

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

const (
	operatorToken = "the-operators-token"
	readerToken   = "the-readers-token"
)

var testOperators, _ = operators.Parse(operatorToken, readerToken)

var testKeys = Config{
	Operators: testOperators, OpenRegistration: true, RegistrationWindow: 10 * time.Minute,
	TTL: 90 * 24 * time.Hour, Overlap: 10 * time.Minute, RenewWindow: 7 * 24 * time.Hour,
}

var (
	anonymous = job.Caller{}
	admin     = job.Caller{Admin: true}
)

// keyWorld is the use cases of clients and keys.
type keyWorld struct {
	*Service
	*apptest.World
	t    *testing.T
	fake *fakeKeys
}

func newKeyWorld(t *testing.T, change ...func(*Config)) *keyWorld {
	cfg := testKeys
	for _, f := range change {
		f(&cfg)
	}
	k := &keyWorld{t: t, World: apptest.NewWorld(t), fake: newFakeKeys()}
	k.Service = New(cfg, k.fake, nil, k.Logger)
	return k
}

// withKeys runs a test of the use cases, with the usual configuration.
func withKeys(t *testing.T, f func(t *testing.T, k *keyWorld)) {
	t.Helper()
	apptest.Bubble(t, func(t *testing.T) { f(t, newKeyWorld(t)) })
}

// second gives the error of a call that answers with a value, too.
func second[T any](_ T, err error) error { return err }

func (k *keyWorld) newClient() job.ID {
	k.t.Helper()
	c := apptest.Must(k.CreateClient(context.Background(), admin))(k.t)
	return c.ID
}

// issue makes a key that must come out.
func (k *keyWorld) issue(key job.IssuedKey, err error) job.IssuedKey {
	k.t.Helper()
	require.NoError(k.t, err)
	require.NotEmpty(k.t, key.Secret)
	return key
}

// newKey is the first key of a new client.
func (k *keyWorld) newKey() job.IssuedKey {
	k.t.Helper()
	return k.issue(k.create(admin, k.newClient(), false))
}

// refused asserts with which code something is refused.
func (k *keyWorld) refused(want job.Code, err error, why ...any) {
	k.t.Helper()
	require.Equal(k.t, want, job.CodeOf(err), why...)
}

// valid asserts that keys are good for authentication.
func (k *keyWorld) valid(keys ...job.IssuedKey) {
	k.t.Helper()
	for _, key := range keys {
		require.Empty(k.t, k.code(key.Secret))
	}
}

// ended asserts that keys are not, and why.
func (k *keyWorld) ended(want job.Code, keys ...job.IssuedKey) {
	k.t.Helper()
	for _, key := range keys {
		require.Equal(k.t, want, k.code(key.Secret))
	}
}

func (k *keyWorld) create(caller job.Caller, client job.ID, rotate bool) (job.IssuedKey, error) {
	return k.CreateKey(context.Background(), caller, client, rotate, job.ScopeAll)
}

func (k *keyWorld) renew(caller job.Caller, client job.ID) (job.IssuedKey, error) {
	return k.RenewKey(context.Background(), caller, client)
}

func (k *keyWorld) revoke(caller job.Caller, client job.ID, id string) error {
	return k.RevokeKey(context.Background(), caller, client, id)
}

// code tells what authentication with a key answers, "" for success.
func (k *keyWorld) code(bearer string) job.Code {
	if _, err := k.Authenticate(context.Background(), bearer); err != nil {
		return job.CodeOf(err)
	}
	return ""
}

func callerOf(key job.IssuedKey) job.Caller {
	return job.Caller{ClientID: key.ClientID, KeyID: key.ID, Scope: key.Scope}
}

// Promise: contract 5, 3.2
func TestCreateClient(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		a := apptest.Must(k.CreateClient(context.Background(), anonymous))(t)
		require.EqualValues(t, 4, a.ID[6]>>4, "a version 4 UUID")

		closed := newKeyWorld(t, func(c *Config) { c.OpenRegistration = false })
		k.refused(job.CodeInvalidCredentials, second(closed.CreateClient(context.Background(), anonymous)))
		k.refused(job.CodeForbidden, second(closed.CreateClient(context.Background(), job.Caller{ClientID: apptest.ClientA})))
		require.Empty(t, closed.fake.clients)
		client := closed.newClient()
		k.refused(job.CodeInvalidCredentials, second(closed.create(anonymous, client, false)))
		closed.issue(closed.create(admin, client, false))
	})
}

// Promise: contract 8a
func TestTheFirstKeyIsOpenOnceAndForAWhile(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		client := k.newClient()
		k.refused(job.CodeInvalidCredentials, second(k.CreateKey(context.Background(), anonymous, client, false, job.ScopeRead)), "it may do all")
		key := k.issue(k.create(anonymous, client, false))
		require.Equal(t, client, key.ClientID)
		require.Equal(t, time.Now().Add(testKeys.TTL), key.ExpiresAt)
		caller := apptest.Must(k.Authenticate(context.Background(), key.Secret))(t)
		require.Equal(t, callerOf(key), caller)
		for _, rotate := range []bool{false, true} {
			k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, client, rotate)), "once")
		}
		require.NoError(t, k.revoke(admin, client, key.ID))
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, client, false)), "not after a revocation either")

		inTime, late := k.newClient(), k.newClient()
		apptest.Pass(testKeys.RegistrationWindow)
		k.issue(k.create(anonymous, inTime, false))
		apptest.Pass(time.Nanosecond)
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, late, false)), "the window is over")
		k.issue(k.create(admin, late, false))
		k.refused(job.CodeInvalidCredentials, second(k.create(anonymous, app.NewID(), false)), "which clients exist is nobody's business")
	})
}

// A key that ended since its request was let in changes no keys.
func TestAKeyThatEndedMeanwhileChangesNoKeys(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		revoked, expired := k.newKey(), k.newKey()
		let := func(key job.IssuedKey) job.Caller {
			return apptest.Must(k.Authenticate(context.Background(), key.Secret))(t)
		}
		early, late := let(revoked), let(expired)
		require.NoError(t, k.revoke(admin, revoked.ClientID, revoked.ID))
		apptest.Pass(testKeys.TTL)
		for caller, code := range map[job.Caller]job.Code{early: job.CodeKeyDisabled, late: job.CodeTokenExpired} {
			k.refused(code, second(k.create(caller, caller.ClientID, true)))
			k.refused(code, second(k.create(caller, caller.ClientID, false)))
			k.refused(code, second(k.renew(caller, caller.ClientID)))
			k.refused(code, k.revoke(caller, caller.ClientID, caller.KeyID))
		}
		require.Len(t, k.fake.keys, 2)
	})
}

// Promise: contract 7, 8
func TestRepeatedCreationGivesMetadataOnly(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		first := k.newKey()
		again, err := k.create(callerOf(first), first.ClientID, false)
		require.NoError(t, err)
		require.Equal(t, job.IssuedKey{APIKey: first.APIKey}, again)
		require.Len(t, k.fake.keys, 1)

		second := k.issue(k.create(callerOf(first), first.ClientID, true))
		again = apptest.Must(k.create(admin, first.ClientID, false))(t)
		require.Equal(t, second.ID, again.ID, "the current key, not the replaced one")
	})
}

func TestAReplacedKeyStaysValidForTheOverlap(t *testing.T) {
	for name, replace := range map[string]func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error){
		"rotate": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.create(callerOf(old), old.ClientID, true)
		},
		"renew": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.renew(callerOf(old), old.ClientID)
		},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			k := newKeyWorld(t)
			k.Background(k.WatchKeys)
			k.fake.changed = nil // the notices of changes come late
			old := k.newKey()
			k.valid(old)
			key := k.issue(replace(k, old))
			require.NotEqual(t, old.ID, key.ID)
			apptest.Pass(testKeys.Overlap - time.Microsecond)
			k.valid(old)

			lost := k.issue(replace(k, old)) // the first answer did not arrive: the old key still replaces
			stored := apptest.Must(k.fake.Key(context.Background(), old.ID))(t)
			require.Equal(t, key.ID, stored.ReplacedBy, "what took over first")
			apptest.Pass(time.Microsecond)
			k.ended(job.CodeTokenExpired, old) // its end does not move
			k.valid(key, lost)
			apptest.Pass(testKeys.Overlap)
			k.ended(job.CodeTokenExpired, key)
			k.valid(lost)

			apptest.Pass(time.Until(lost.ExpiresAt) - time.Second)
			k.issue(replace(k, lost))
			apptest.Pass(time.Second)
			k.ended(job.CodeTokenExpired, lost) // a replacement never lengthens a life
		})
	}
}

// Promise: contract 14, 15
func TestRenewNeedsAKeyToRenew(t *testing.T) {
	withKeys(t, func(_ *testing.T, k *keyWorld) {
		client := k.newClient()
		k.refused(job.CodeInvalidCredentials, second(k.renew(anonymous, client)))
		k.refused(job.CodeConflict, second(k.renew(admin, client)))
		k.refused(job.CodeClientNotFound, second(k.renew(admin, app.NewID())), "a client that does not exist is not one without a key")
		key := k.issue(k.create(admin, client, false))
		apptest.Pass(testKeys.TTL)
		k.refused(job.CodeConflict, second(k.renew(admin, client)), "it has expired")
		k.ended(job.CodeTokenExpired, key)
	})
}

// Promise: contract 14, 15
// Promise: contract 15a
func TestRevoke(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.Background(k.WatchKeys)
		key, other := k.newKey(), k.newKey()
		k.valid(key)
		k.refused(job.CodeInvalidCredentials, k.revoke(anonymous, key.ClientID, key.ID))
		k.refused(job.CodeClientNotFound, k.revoke(callerOf(other), key.ClientID, key.ID))
		k.refused(job.CodeRequestNotFound, k.revoke(callerOf(other), other.ClientID, key.ID), "the key of somebody else")
		k.refused(job.CodeClientNotFound, k.revoke(admin, app.NewID(), key.ID))
		k.valid(key)

		notify := k.fake.changed
		k.fake.changed = func(string) {} // it is on its way: here none is needed
		require.NoError(t, k.revoke(callerOf(key), key.ClientID, key.ID))
		k.ended(job.CodeKeyDisabled, key)
		at := *k.fake.keys[1].RevokedAt
		apptest.Pass(time.Minute)
		require.NoError(t, k.revoke(admin, key.ClientID, key.ID), "again")
		require.Equal(t, at, *k.fake.keys[1].RevokedAt)
		require.Len(t, k.Log.Lines(t, map[string]any{"action": "revoke_key", "new": true}), 1)

		k.valid(other)
		k.fake.changed = notify
		elsewhere := newKeyWorld(t)
		elsewhere.store = k.fake
		require.NoError(t, elsewhere.revoke(admin, other.ClientID, other.ID))
		k.ended(job.CodeKeyDisabled, other) // it is heard of
		apptest.Pass(testKeys.TTL)
		k.ended(job.CodeKeyDisabled, key) // revoked weighs more than expired
	})
}

func TestAClientHasAtMostTenValidKeys(t *testing.T) {
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

		read := func() (job.IssuedKey, error) {
			return k.CreateKey(context.Background(), admin, client, false, job.ScopeRead)
		}
		for range maxKeys {
			k.issue(read())
		}
		k.refused(job.CodeConflict, second(read()))
		require.NoError(t, k.revoke(admin, client, keys[4].ID))
		k.issue(k.create(admin, client, true)) // those with a lesser scope do not stand in the way
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
		require.Empty(t, k.fake.keys)
	})
}

func TestKeyChangesReportStorageTrouble(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.newKey()
		k.fake.err = apptest.ErrStorage
		for _, err := range []error{
			second(k.CreateClient(context.Background(), anonymous)),
			second(k.create(admin, key.ClientID, true)), second(k.renew(admin, key.ClientID)), k.revoke(admin, key.ClientID, key.ID),
			second(k.Authenticate(context.Background(), key.Secret)),
		} {
			require.ErrorIs(t, err, apptest.ErrStorage, "not 401: nobody knows")
		}
	})
}
