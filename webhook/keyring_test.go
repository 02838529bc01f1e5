package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func kidAt(t *testing.T, k *Keyring, at time.Time) string {
	t.Helper()
	key, err := k.current(at)
	require.NoError(t, err)
	require.True(t, publicOf(key.private).Equal(ed25519.PublicKey(key.Public)))
	return key.KID
}

func TestRotation(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	k := NewKeyring(newVault(t), store)
	require.NoError(t, k.Rotate(t.Context(), false), "Rotate also creates the first key")
	require.Len(t, store.keys, 1)
	require.NoError(t, k.Ensure(t.Context()))
	require.Len(t, store.keys, 1)
	old := store.keys[0].KID
	require.NoError(t, k.Rotate(t.Context(), false))
	require.Len(t, store.keys, 2)
	fresh := store.keys[1].KID
	require.NotEqual(t, old, fresh)

	now := time.Now()
	require.Equal(t, old, kidAt(t, k, now), "the new key is published before it signs")
	require.Equal(t, old, kidAt(t, k, now.Add(publishBefore-time.Minute)))
	require.Equal(t, fresh, kidAt(t, k, now.Add(publishBefore+time.Minute)))
	require.Equal(t, fresh, kidAt(t, k, now.Add(1000*time.Hour)))
	require.Equal(t, publishAfter, store.keys[0].RetiresAt.Sub(store.keys[1].SignsFrom))

	other := NewKeyring(newVault(t), store)
	require.NoError(t, other.Ensure(t.Context()))
	require.Equal(t, old, kidAt(t, other, now))
	store.shift(publishBefore + time.Second)
	require.NoError(t, other.Refresh(t.Context()))
	require.Equal(t, fresh, kidAt(t, other, now))
}

func TestClockBehindTheStores(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	k := NewKeyring(newVault(t), store)
	require.NoError(t, k.Ensure(t.Context()))
	require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now().Add(-time.Hour)))
	require.NoError(t, k.Rotate(t.Context(), false))
	require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now().Add(-time.Hour)))
}

func TestKeysOfAnotherMasterKey(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	require.NoError(t, NewKeyring(newVault(t), store).Ensure(t.Context()))
	vault, err := NewVault(make([]byte, masterKeyBytes))
	require.NoError(t, err)
	k := NewKeyring(vault, store)
	require.ErrorContains(t, k.Ensure(t.Context()), "FORGERUN_MASTER_KEY")
	_, err = k.current(time.Now())
	require.ErrorIs(t, err, errNoKey)
	require.ErrorContains(t, k.Rotate(t.Context(), false), "FORGERUN_MASTER_KEY")
	require.Len(t, store.keys, 1)
	require.Nil(t, store.keys[0].RetiresAt)
}

func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	private, kid := newKey(t)
	_, otherKID := newKey(t)
	sealed := func(kid string, plain []byte) []byte { return v.Seal(keyContext(kid), plain) }
	good := job.SigningKey{KID: kid, Public: publicOf(private), Sealed: sealed(kid, private.Seed())}
	other, _ := newKey(t)
	for name, change := range map[string]func(k *job.SigningKey){
		"private part from another row": func(k *job.SigningKey) { k.Sealed = sealed(otherKID, private.Seed()) },
		"another key's private part":    func(k *job.SigningKey) { k.Sealed = sealed(kid, other.Seed()) },
		"truncated":                     func(k *job.SigningKey) { k.Sealed = k.Sealed[:10] },
		"private part is empty":         func(k *job.SigningKey) { k.Sealed = []byte{} },
		"private part is too short":     func(k *job.SigningKey) { k.Sealed = sealed(kid, []byte("short")) },
		"wrong id":                      func(k *job.SigningKey) { k.KID = otherKID },
		"no public part":                func(k *job.SigningKey) { k.Public = nil },
		"no private part":               func(k *job.SigningKey) { k.Sealed = nil },
	} {
		key := good
		change(&key)
		require.Error(t, NewKeyring(v, &memoryStore{keys: []job.SigningKey{key}}).Ensure(t.Context()), name)
	}
	require.NoError(t, NewKeyring(v, &memoryStore{keys: []job.SigningKey{good}}).Ensure(t.Context()))
}

func TestRefreshThatFailsKeepsTheKeys(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	k := NewKeyring(newVault(t), store)
	require.NoError(t, k.Ensure(t.Context()))
	kid := kidAt(t, k, time.Now())
	store.err = errStore
	require.ErrorIs(t, k.Refresh(t.Context()), errStore)
	require.ErrorIs(t, k.Ensure(t.Context()), errStore)
	require.ErrorIs(t, k.Rotate(t.Context(), false), errStore)
	require.Equal(t, kid, kidAt(t, k, time.Now()))

	store.err = nil
	require.NoError(t, k.Rotate(t.Context(), false))
	store.keys = store.keys[:1] // only the old key; it retires after publishBefore + publishAfter
	require.NoError(t, k.Refresh(t.Context()))
	_, err := k.current(time.Now().Add(publishBefore + publishAfter + time.Minute))
	require.ErrorIs(t, err, errNoKey, "a retired key does not sign")
}

// RFC 9421, appendix B.1.4; RFC 8037, appendix A.
var rfcSeeds = map[string]string{
	"RFC 9421 test-key-ed25519": "9f8362f87a484a954e6e740c5b4c0e84229139a20aa8ab56ff66586f6a7d29c5",
	"RFC 8032 TEST 1, RFC 8037": "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
}

func rfcKey(t testing.TB, name string) ed25519.PrivateKey {
	t.Helper()
	seed, err := hex.DecodeString(rfcSeeds[name])
	require.NoError(t, err)
	return ed25519.NewKeyFromSeed(seed)
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	public := publicOf(rfcKey(t, "RFC 8032 TEST 1, RFC 8037"))
	kid, err := thumbprint(public)
	require.NoError(t, err)
	require.Equal(t, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", kid)

	text, err := Directory([]job.SigningKey{{KID: kid, Public: public, Sealed: []byte("sealed")}})
	require.NoError(t, err)
	require.JSONEq(t, `{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","alg":"EdDSA",
		"kid":"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`, string(text))

	text, err = Directory(nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"keys":[]}`, string(text))

	store := &memoryStore{}
	k := NewKeyring(newVault(t), store)
	require.NoError(t, k.Ensure(t.Context()))
	require.NoError(t, k.Rotate(t.Context(), false))
	text, err = Directory(store.keys)
	require.NoError(t, err)
	var set struct{ Keys []map[string]string }
	require.NoError(t, json.Unmarshal(text, &set))
	require.Len(t, set.Keys, 2)
	require.NotContains(t, string(text), `"d"`, "no private part")
}

func TestMasterKeyHas32Bytes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 16, 24, 31, 33, 64} {
		_, err := NewVault(make([]byte, n))
		require.ErrorContains(t, err, "FORGERUN_MASTER_KEY", "%d bytes", n)
	}
}

func TestVault(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	for _, plain := range [][]byte{{}, []byte("a"), bytes.Repeat([]byte("x"), 1000)} {
		sealed := v.Seal("row:1", plain)
		opened, err := v.Open("row:1", sealed)
		require.NoError(t, err)
		require.Equal(t, string(plain), string(opened))
		require.NotEqual(t, sealed, v.Seal("row:1", plain), "each call uses a new nonce")

		_, err = v.Open("row:2", sealed)
		require.ErrorContains(t, err, "FORGERUN_MASTER_KEY", "moved to another row")
		for i := range sealed {
			damaged := bytes.Clone(sealed)
			damaged[i] ^= 1
			_, err = v.Open("row:1", damaged)
			require.Error(t, err)
			_, err = v.Open("row:1", sealed[:i])
			require.Error(t, err)
		}
		other, err := NewVault(make([]byte, masterKeyBytes))
		require.NoError(t, err)
		_, err = other.Open("row:1", sealed)
		require.ErrorContains(t, err, "FORGERUN_MASTER_KEY")
	}
	_, err := v.Open("row:1", nil)
	require.Error(t, err)
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	secret, sealed, err := v.NewSecret(webhookID)
	require.NoError(t, err)
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	require.True(t, ok)
	random := must(base64.StdEncoding.DecodeString(encoded))(t)
	require.Len(t, random, 32)
	require.NotContains(t, string(sealed), string(random))

	revealed := must(v.Secret(webhookID, sealed))(t)
	require.Equal(t, secret, revealed)
	_, err = v.Secret(job.ID{1}, sealed)
	require.ErrorContains(t, err, "FORGERUN_MASTER_KEY", "another webhook's secret")
	require.NotContains(t, err.Error(), encoded)

	other, _, err := v.NewSecret(webhookID)
	require.NoError(t, err)
	require.NotEqual(t, secret, other)
}
