package clients

import (
	"context"
	"regexp"
	"strings"
	"testing"
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
			"":                  "", // without credentials the caller is anonymous
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
		caller, err := k.Authenticate(context.Background(), operatorToken)
		require.NoError(t, err)
		require.Equal(t, job.Caller{Admin: true, Operator: "admin"}, caller)
		offline := k.elsewhere()
		offline.store.Close()
		for bearer, known := range map[string]bool{"nonsense": true, operatorToken + "x": true, operatorToken: true, unknown: false} {
			require.Equal(t, known, offline.code(bearer) == k.code(bearer), "%q: what is not a key is not looked up", bearer)
		}

		closed := k.elsewhere(func(c *Config) { c.Operators, c.OpenRegistration = operators.Tokens{}, false })
		caller, err = closed.Authenticate(context.Background(), "")
		require.Error(t, err, "an empty token is not an operator's token")
		require.Equal(t, anonymous, caller)
		caller, err = k.elsewhere(func(c *Config) { c.Operators = operators.Tokens{} }).Authenticate(context.Background(), "")
		require.NoError(t, err, "registration is open")
		require.Equal(t, anonymous, caller)
	})
}

func TestAKeyExpiresToTheInstant(t *testing.T) {
	withKeys(t, func(t *testing.T, k *keyWorld) {
		k.memory.connected(true)
		key := k.newKey()
		k.pass(key.ExpiresAt.Sub(k.store.Now()) - time.Microsecond)
		require.Empty(t, k.code(key.Secret))
		require.Contains(t, k.memory.known, key.ID)
		k.pass(time.Microsecond)
		caller, err := k.Authenticate(context.Background(), key.Secret)
		require.Equal(t, job.CodeTokenExpired, job.CodeOf(err))
		require.Equal(t, key.ClientID, caller.ClientID, "the caller is returned for the log")
	})
}

func TestKeyActionsAreLogged(t *testing.T) {
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
			k.pass(time.Microsecond)
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
		require.Equal(t, hashAPIKey(renewed.Secret), k.keys(client)[0].SecretHash)
		require.NotContains(t, k.Log.String(), first.Secret[len(keyPrefix)+keyIDLength+1:])
	})
}

func TestKeysAreCachedOnlyWhileChangesAreReported(t *testing.T) {
	t.Parallel()
	k, calls := New(testKeys, nil, nil, nil), 0
	stop := k.WatchKey("a", func() { calls++ })
	remembers := func(want bool, meanwhile func(), why string) {
		t.Helper()
		_, _, generation := k.memory.recall("a")
		meanwhile()
		k.memory.remember(job.APIKey{ID: "a"}, generation)
		_, known, _ := k.memory.recall("a")
		require.Equal(t, want, known, why)
	}
	nothing := func() {}
	remembers(false, nothing, "changes are not watched yet")
	k.memory.connected(true)
	remembers(true, nothing, "remembered")
	k.memory.forget("b")
	require.Len(t, k.memory.known, 1)
	remembers(false, func() { k.memory.forget("a") }, "revoked during the lookup")
	remembers(false, func() { k.memory.connected(false) }, "disconnected during the lookup")
	remembers(false, nothing, "the watch is disconnected")
	k.memory.connected(true)
	remembers(false, func() { k.memory.connected(false); k.memory.connected(true) }, "reconnected during the lookup")
	require.Equal(t, 4, calls, "each possible change notifies watchers")
	stop()
	k.memory.forget("a")
	require.Equal(t, 4, calls)

	for range maxRemembered {
		k.memory.known[randomBase62(keyIDLength)] = job.APIKey{}
	}
	remembers(true, nothing, "")
	require.Len(t, k.memory.known, 1)
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
	}
}

func FuzzParseAPIKey(f *testing.F) {
	key, _ := newAPIKey()
	badID := "frk_00000000000-_" + strings.Repeat("0", secretLength)
	for _, seed := range []string{
		"", "frk_", key, key[:keyLength-1], key + " ", " " + key, "Bearer " + key, strings.ToUpper(key), strings.ToLower(key),
		strings.Repeat("0", keyLength), "frk_" + strings.Repeat("é", 40), badID + checksum(badID),
	} {
		f.Add(seed)
	}
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
