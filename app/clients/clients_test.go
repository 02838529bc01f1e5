package clients

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

// keyWorld is the part of the use cases that is about clients and keys.
type keyWorld struct {
	*Service
	t    *testing.T
	w    *worldClients
	fake *fakeKeys
}

func newKeyWorld(t *testing.T, change ...func(*Config)) *keyWorld {
	cfg := testKeys
	for _, f := range change {
		f(&cfg)
	}
	w := newWorldClients(t)
	k := &keyWorld{t: t, w: w, fake: newFakeKeys()}
	k.Service = New(cfg, k.fake, nil, w.Logger)
	return k
}

func (k *keyWorld) newClient() job.ID {
	k.t.Helper()
	c, err := k.CreateClient(context.Background(), admin)
	require.NoError(k.t, err)
	return c.ID
}

// issue makes a key that must come out.
func (k *keyWorld) issue(key job.IssuedKey, err error) job.IssuedKey {
	k.t.Helper()
	require.NoError(k.t, err)
	require.NotEmpty(k.t, key.Secret)
	return key
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

func TestCreateClient(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		a, err := k.CreateClient(context.Background(), anonymous)
		require.NoError(t, err)
		require.EqualValues(t, 4, a.ID[6]>>4, "a version 4 UUID")
		require.Len(t, k.w.Log.Lines(t, map[string]any{"action": "create_client", "client_id": a.ID.String()}), 1)

		closed := newKeyWorld(t, func(c *Config) { c.OpenRegistration = false })
		_, err = closed.CreateClient(context.Background(), anonymous)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err))
		_, err = closed.CreateClient(context.Background(), job.Caller{ClientID: apptest.ClientA})
		require.Equal(t, job.CodeForbidden, job.CodeOf(err))
		require.Empty(t, closed.fake.clients)
		_, err = closed.CreateClient(context.Background(), admin)
		require.NoError(t, err)

		k.fake.err = apptest.ErrStorage
		_, err = k.CreateClient(context.Background(), anonymous)
		require.ErrorIs(t, err, apptest.ErrStorage)
	})
}

func TestTheFirstKeyIsOpenOnceAndForAWhile(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		key := k.issue(k.create(anonymous, client, false))
		require.Equal(t, client, key.ClientID)
		require.Equal(t, time.Now().Add(testKeys.TTL), key.ExpiresAt)
		caller, err := k.Authenticate(context.Background(), key.Secret)
		require.NoError(t, err)
		require.Equal(t, callerOf(key), caller)

		for _, rotate := range []bool{false, true} {
			_, err = k.create(anonymous, client, rotate)
			require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err), "once")
		}
		require.NoError(t, k.revoke(admin, client, key.ID))
		_, err = k.create(anonymous, client, false)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err), "not after a revocation either")

		late := k.newClient()
		apptest.Pass(testKeys.RegistrationWindow)
		inTime := late
		k.issue(k.create(anonymous, inTime, false))
		later := k.newClient()
		apptest.Pass(testKeys.RegistrationWindow + time.Nanosecond)
		_, err = k.create(anonymous, later, false)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err), "the window is over")
		k.issue(k.create(admin, later, false))

		_, err = k.create(anonymous, app.NewID(), false)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err), "which clients exist is nobody's business")
	})
}

func TestTheFirstKeyNeedsTheOperatorWhenRegistrationIsClosed(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t, func(c *Config) { c.OpenRegistration = false })
		client := k.newClient()
		_, err := k.create(anonymous, client, false)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err))
		k.issue(k.create(admin, client, false))
	})
}

func TestTenFirstKeysAtOnceAreOne(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { _, _ = k.create(anonymous, client, false) })
		}
		all.Wait()
		require.Len(t, k.fake.keys, 1)
	})
}

func TestRepeatedCreationGivesMetadataOnly(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		first := k.issue(k.create(anonymous, client, false))
		again, err := k.create(callerOf(first), client, false)
		require.NoError(t, err)
		require.Equal(t, job.IssuedKey{APIKey: first.APIKey}, again)
		require.Len(t, k.fake.keys, 1)

		second := k.issue(k.create(callerOf(first), client, true))
		again, err = k.create(admin, client, false)
		require.NoError(t, err)
		require.Equal(t, second.ID, again.ID, "the current key, not the replaced one")
	})
}

func TestAReplacedKeyStaysValidForTheOverlap(t *testing.T) {
	replace := map[string]func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error){
		"rotate": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.create(callerOf(old), old.ClientID, true)
		},
		"renew": func(k *keyWorld, old job.IssuedKey) (job.IssuedKey, error) {
			return k.renew(callerOf(old), old.ClientID)
		},
	}
	for name, replace := range replace {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				k := newKeyWorld(t)
				old := k.issue(k.create(admin, k.newClient(), false))
				key := k.issue(replace(k, old))
				require.NotEqual(t, old.ID, key.ID)
				apptest.Pass(testKeys.Overlap - time.Microsecond)
				require.Empty(t, k.code(old.Secret))

				lost := k.issue(replace(k, old)) // the first answer did not arrive: the old key still replaces
				stored, err := k.fake.Key(context.Background(), old.ID)
				require.NoError(t, err)
				require.Equal(t, key.ID, stored.ReplacedBy, "what took over first")
				apptest.Pass(time.Microsecond)
				require.Equal(t, job.CodeTokenExpired, k.code(old.Secret), "its end does not move")
				require.Empty(t, k.code(key.Secret))
				require.Empty(t, k.code(lost.Secret))
				apptest.Pass(testKeys.Overlap)
				require.Equal(t, job.CodeTokenExpired, k.code(key.Secret))
				require.Empty(t, k.code(lost.Secret))
			})
		})
	}
}

func TestAReplacementNeverLengthensALife(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		old := k.issue(k.create(admin, k.newClient(), false))
		apptest.Pass(testKeys.TTL - time.Second)
		k.issue(k.renew(callerOf(old), old.ClientID))
		apptest.Pass(time.Second)
		require.Equal(t, job.CodeTokenExpired, k.code(old.Secret))
	})
}

func TestRenewNeedsAKeyToRenew(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		_, err := k.renew(anonymous, client)
		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(err))
		_, err = k.renew(admin, client)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		_, err = k.renew(admin, app.NewID())
		require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), "a client that does not exist is not one without a key")
		key := k.issue(k.create(admin, client, false))
		apptest.Pass(testKeys.TTL)
		_, err = k.renew(admin, client)
		require.Equal(t, job.CodeConflict, job.CodeOf(err), "it has expired")
		require.Equal(t, job.CodeTokenExpired, k.code(key.Secret))
	})
}

func TestRevoke(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		key := k.issue(k.create(admin, k.newClient(), false))
		other := k.issue(k.create(admin, k.newClient(), false))
		require.Empty(t, k.code(key.Secret))

		require.Equal(t, job.CodeInvalidCredentials, job.CodeOf(k.revoke(anonymous, key.ClientID, key.ID)))
		require.Equal(t, job.CodeClientNotFound, job.CodeOf(k.revoke(callerOf(other), key.ClientID, key.ID)))
		require.Equal(t, job.CodeRequestNotFound, job.CodeOf(k.revoke(callerOf(other), other.ClientID, key.ID)), "the key of somebody else")
		require.Equal(t, job.CodeClientNotFound, job.CodeOf(k.revoke(admin, app.NewID(), key.ID)))
		require.Empty(t, k.code(key.Secret))

		require.NoError(t, k.revoke(callerOf(key), key.ClientID, key.ID))
		at := *k.fake.keys[1].RevokedAt
		require.Equal(t, job.CodeKeyDisabled, k.code(key.Secret))
		apptest.Pass(time.Minute)
		require.NoError(t, k.revoke(admin, key.ClientID, key.ID), "again")
		require.Equal(t, at, *k.fake.keys[1].RevokedAt)
		require.Len(t, k.w.Log.Lines(t, map[string]any{"action": "revoke_key", "new": true}), 1)
		require.Empty(t, k.code(other.Secret))

		apptest.Pass(testKeys.TTL)
		require.Equal(t, job.CodeKeyDisabled, k.code(key.Secret), "revoked weighs more than expired")
	})
}

func TestAClientHasAtMostTenValidKeys(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		keys := []job.IssuedKey{k.issue(k.create(admin, client, false))}
		for range maxKeys - 1 {
			keys = append(keys, k.issue(k.renew(admin, client)))
		}
		for _, key := range keys {
			require.Empty(t, k.code(key.Secret))
		}
		_, err := k.renew(admin, client)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		_, err = k.create(admin, client, true)
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
		require.NoError(t, k.revoke(admin, client, keys[3].ID))
		k.issue(k.renew(admin, client))
	})
}

func TestOtherClientsKeysDoNotExist(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		client := k.newClient()
		stranger := job.Caller{ClientID: k.newClient()}
		for what, err := range map[string]error{
			"create":  second(k.create(stranger, client, false)),
			"rotate":  second(k.create(stranger, client, true)),
			"renew":   second(k.renew(stranger, client)),
			"unknown": second(k.create(stranger, app.NewID(), false)),
		} {
			require.Equal(t, errNoClient, err, what)
		}
		require.Empty(t, k.fake.keys)
	})
}

func TestKeyChangesReportStorageTrouble(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.issue(k.create(admin, k.newClient(), false))
		k.fake.err = apptest.ErrStorage
		for _, err := range []error{
			second(k.create(admin, key.ClientID, true)), second(k.renew(admin, key.ClientID)), k.revoke(admin, key.ClientID, key.ID),
			second(k.Authenticate(context.Background(), key.Secret)),
		} {
			require.ErrorIs(t, err, apptest.ErrStorage, "not 401: nobody knows")
		}
	})
}

func TestAuthenticate(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.issue(k.create(admin, k.newClient(), false))
		unknown, _ := newAPIKey()
		forged := key.Secret[:keyLength-secretLength-checksumLength] + randomBase62(secretLength)
		forged += checksum(forged) // the id of a real key with another secret
		for bearer, want := range map[string]job.Code{
			"":                  "", // while anybody may register
			"nonsense":          job.CodeInvalidCredentials,
			unknown:             job.CodeInvalidCredentials,
			forged:              job.CodeInvalidCredentials,
			operatorToken + "x": job.CodeInvalidCredentials,
			operatorToken:       "",
			readerToken:         job.CodeForbidden,
			key.Secret:          "",
		} {
			require.Equal(t, want, k.code(bearer), "%q", bearer)
		}
		require.Equal(t, 3, k.fake.lookups, "what is not a key is not looked up")
		caller, err := k.Authenticate(context.Background(), operatorToken)
		require.NoError(t, err)
		require.Equal(t, job.Caller{Admin: true, Operator: "admin"}, caller)

		closed := newKeyWorld(t, func(c *Config) { c.Operators, c.OpenRegistration = operators.Tokens{}, false })
		caller, err = closed.Authenticate(context.Background(), "")
		require.Error(t, err, "no token is not an empty token")
		require.Equal(t, anonymous, caller)
		caller, err = newKeyWorld(t, func(c *Config) { c.Operators = operators.Tokens{} }).Authenticate(context.Background(), "")
		require.NoError(t, err, "anybody may register")
		require.Equal(t, anonymous, caller)
	})
}

func TestAKeyExpiresToTheInstant(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		key := k.issue(k.create(admin, k.newClient(), false))
		apptest.Pass(time.Until(key.ExpiresAt) - time.Nanosecond)
		require.Empty(t, k.code(key.Secret))
		require.Empty(t, k.code(key.Secret))
		require.Equal(t, 1, k.fake.lookups, "from memory")
		apptest.Pass(time.Nanosecond)
		caller, err := k.Authenticate(context.Background(), key.Secret)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))
		require.Equal(t, key.ClientID, caller.ClientID, "for the log")
	})
}

func TestKeysAreRememberedOnlyWhileChangesAreHeardOf(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.issue(k.create(admin, k.newClient(), false))
		lookups := func(want int, why string) {
			t.Helper()
			require.Empty(t, k.code(key.Secret))
			require.Equal(t, want, k.fake.lookups, why)
		}
		lookups(1, "")
		lookups(2, "nobody watches yet")
		stop := k.w.Background(k.WatchKeys)
		lookups(3, "")
		lookups(3, "remembered")
		k.fake.changed(key.ID)
		lookups(4, "forgotten on notice")
		k.fake.connected(false)
		lookups(5, "forgotten when the watch broke")
		lookups(6, "and not remembered until it is back")
		k.fake.connected(true)
		lookups(7, "")
		lookups(7, "")
		stop()
		synctest.Wait()
		lookups(8, "")
		lookups(9, "")
	})
}

func TestARevocationHereNeedsNoNotice(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		key := k.issue(k.create(admin, k.newClient(), false))
		require.Empty(t, k.code(key.Secret))
		k.fake.changed = func(string) {} // it is on its way
		require.NoError(t, k.revoke(admin, key.ClientID, key.ID))
		require.Equal(t, job.CodeKeyDisabled, k.code(key.Secret))
	})
}

func TestARevocationElsewhereIsHeardOf(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		key := k.issue(k.create(admin, k.newClient(), false))
		require.Empty(t, k.code(key.Secret))
		elsewhere := newKeyWorld(t)
		elsewhere.store = k.fake
		require.NoError(t, elsewhere.revoke(admin, key.ClientID, key.ID))
		require.Equal(t, job.CodeKeyDisabled, k.code(key.Secret))
	})
}

func TestAnOvertakenLookUpIsNotRemembered(t *testing.T) {
	for name, overtake := range map[string]func(*keyWorld, job.IssuedKey){
		"by a revocation":            func(k *keyWorld, key job.IssuedKey) { require.NoError(k.t, k.revoke(admin, key.ClientID, key.ID)) },
		"by a broken watch":          func(k *keyWorld, _ job.IssuedKey) { k.fake.connected(false) },
		"by a watch that was broken": func(k *keyWorld, _ job.IssuedKey) { k.fake.connected(false); k.fake.connected(true) },
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				k := newKeyWorld(t)
				k.w.Background(k.WatchKeys)
				key := k.issue(k.create(admin, k.newClient(), false))
				k.fake.onKey = func() {
					k.fake.onKey = nil
					overtake(k, key)
				}
				_ = k.code(key.Secret)
				require.Empty(t, k.known)
			})
		})
	}
}

func TestTheMemoryOfKeysIsBounded(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		k.w.Background(k.WatchKeys)
		for range maxRemembered {
			k.known[randomBase62(keyIDLength)] = job.APIKey{}
		}
		key := k.issue(k.create(admin, k.newClient(), false))
		require.Empty(t, k.code(key.Secret))
		require.Len(t, k.known, 1)
	})
}

func TestSecretsAreNotStoredOrLogged(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		k := newKeyWorld(t)
		key := k.issue(k.create(admin, k.newClient(), false))
		require.Empty(t, k.code(key.Secret))
		secret := key.Secret[len(keyPrefix)+keyIDLength+1:]
		require.NotContains(t, k.w.Log.Buf.String(), secret)
		require.True(t, slices.ContainsFunc(k.fake.keys, func(stored job.APIKey) bool { return stored.SecretHash == hashAPIKey(key.Secret) }))
		require.Len(t, k.w.Log.Lines(t, map[string]any{"action": "create_key", "client_id": key.ClientID.String(), "key_id": key.ID}), 1)
	})
}
