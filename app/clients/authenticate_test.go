package clients

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Promise: contract 14, 15
func TestAuthenticate(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.newKey()
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
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.Background(k.WatchKeys)
		key := k.newKey()
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
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.newKey()
		lookups := func(want int, why string) {
			t.Helper()
			require.Empty(t, k.code(key.Secret))
			require.Equal(t, want, k.fake.lookups, why)
		}
		lookups(1, "")
		lookups(2, "nobody watches yet")
		stop := k.Background(k.WatchKeys)
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

func TestAnOvertakenLookUpIsNotRemembered(t *testing.T) {
	for name, overtake := range map[string]func(*keyWorld, job.IssuedKey){
		"by a revocation":                  func(k *keyWorld, key job.IssuedKey) { require.NoError(k.t, k.revoke(admin, key.ClientID, key.ID)) },
		"by a disconnected watch":          func(k *keyWorld, _ job.IssuedKey) { k.fake.connected(false) },
		"by a watch that was disconnected": func(k *keyWorld, _ job.IssuedKey) { k.fake.connected(false); k.fake.connected(true) },
	} {
		apptest.Run(t, name, func(t *testing.T) {
			k := newKeyWorld(t)
			k.Background(k.WatchKeys)
			key := k.newKey()
			k.fake.onKey = func() {
				k.fake.onKey = nil
				overtake(k, key)
			}
			_ = k.code(key.Secret)
			require.Empty(t, k.known)
		})
	}
}

// A wrong credential names a client by the public part of a key that exists.
func TestAWrongKeyNamesItsClient(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		key := k.newKey()
		public := keyPrefix + key.ID
		for _, named := range []string{key.Secret, public, public + "_wrong", key.Secret + "x", public + strings.Repeat("x", 200)} {
			require.Equal(t, job.Caller{ClientID: key.ClientID, KeyID: key.ID}, k.Named(t.Context(), named), named)
		}
		lookups := k.fake.lookups
		for _, none := range []string{"", "frk_", key.Secret[len(keyPrefix):], "frk_\xff\x0000000000_", operatorToken} {
			require.Zero(t, k.Named(t.Context(), none), none)
		}
		require.Equal(t, lookups, k.fake.lookups, "what names no key is not looked up")
		unknown, _ := newAPIKey()
		require.Zero(t, k.Named(t.Context(), unknown))
		k.fake.err = apptest.ErrStorage
		require.Zero(t, k.Named(t.Context(), key.Secret))
	})
}

func TestTheMemoryOfKeysIsBounded(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.Background(k.WatchKeys)
		for range maxRemembered {
			k.known[randomBase62(keyIDLength)] = job.APIKey{}
		}
		key := k.newKey()
		require.Empty(t, k.code(key.Secret))
		require.Len(t, k.known, 1)
	})
}

// Each action has one line and one span, of its own request, which name client and key, and no secret.
func TestRevokedKeysArePublished(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		var client job.ID
		var first, renewed job.IssuedKey
		do := func(action string, f func(ctx context.Context) error) {
			k.Traced(func(ctx context.Context) { require.NoError(t, f(telemetry.WithRequest(ctx, action)), action) })
		}
		do("create_client", func(ctx context.Context) error {
			c, err := k.CreateClient(ctx, admin)
			client = c.ID
			return err
		})
		do("create_key", func(ctx context.Context) (err error) {
			first, err = k.CreateKey(ctx, admin, client, false, job.ScopeAll)
			return err
		})
		do("renew_key", func(ctx context.Context) (err error) {
			renewed, err = k.RenewKey(ctx, callerOf(first), client)
			return err
		})
		do("revoke_key", func(ctx context.Context) error { return k.RevokeKey(ctx, admin, client, first.ID) })
		for i, action := range []string{"create_client", "create_key", "renew_key", "revoke_key"} {
			require.Len(t, k.Log.Lines(t, map[string]any{"action": action, "request_id": action, "client_id": client.String()}), 1, action)
			span := apptest.Attributes(k.SpansNamed("request")[i])
			require.Equal(t, client.String(), span["forgerun.client_id"], action)
			require.Equal(t, []any{nil, first.ID, renewed.ID, first.ID}[i], span["forgerun.key_id"], action)
		}
		require.Equal(t, hashAPIKey(renewed.Secret), k.fake.keys[0].SecretHash)
		require.NotContains(t, k.Log.String(), first.Secret[len(keyPrefix)+keyIDLength+1:])
	})
}

func TestAPIKeyFormat(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^frk_([0-9A-Za-z]{12})_[0-9A-Za-z]{49}$`)
	seen := map[string]bool{}
	for range 200 {
		key, id := newAPIKey()
		require.Equal(t, id, form.FindStringSubmatch(key)[1])
		parsed, ok := parseAPIKey(key)
		require.True(t, ok)
		require.Equal(t, id, parsed)
		require.False(t, seen[key] || seen[id])
		seen[key], seen[id] = true, true
		require.NotContains(t, string(bytesOf(hashAPIKey(key))), key)
	}
}

func bytesOf(b [32]byte) []byte { return b[:] }

func TestAPIKeyUsesAllDigits(t *testing.T) {
	t.Parallel()
	drawn := randomBase62(20_000)
	for _, digit := range base62 {
		require.InDelta(t, 20_000/62, strings.Count(drawn, string(digit)), 150, "digit %c", digit)
	}
}

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	key, _ := newAPIKey()
	body := "frk_00000000000-_" + strings.Repeat("0", secretLength)
	for _, bad := range []string{
		"", "frk_", key + " ", " " + key, "Bearer " + key, strings.ToUpper(key), strings.ToLower(key), strings.Repeat("0", keyLength),
		body + checksum(body), // a right checksum does not make a wrong id right
	} {
		_, ok := parseAPIKey(bad)
		require.False(t, ok, "%q", bad)
	}
}

func FuzzParseAPIKey(f *testing.F) {
	for range 3 {
		key, _ := newAPIKey()
		f.Add(key)
		f.Add(key[:keyLength-1])
	}
	f.Add("")
	f.Add("frk_" + strings.Repeat("é", 40))
	f.Fuzz(func(t *testing.T, key string) {
		id, ok := parseAPIKey(key)
		if !ok {
			require.Empty(t, id)
			return
		}
		require.Len(t, id, keyIDLength)
		require.Empty(t, strings.Trim(id, base62))
		require.Equal(t, keyPrefix+id+"_", key[:len(keyPrefix)+keyIDLength+1])
		body := key[:len(key)-checksumLength]
		require.Equal(t, body+checksum(body), key)
	})
}
