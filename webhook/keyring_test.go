package webhook

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// kidAt is the id of the key that a keyring signs with at a moment.
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
	k := NewKeyring(newVault(t), store, nil)
	require.NoError(t, k.Rotate(t.Context()), "also where there is no key yet")
	require.Len(t, store.keys, 1)
	require.NoError(t, k.Ensure(t.Context()))
	require.Len(t, store.keys, 1)
	old := store.keys[0].KID
	require.NoError(t, k.Rotate(t.Context()))
	require.Len(t, store.keys, 2)
	fresh := store.keys[1].KID
	require.NotEqual(t, old, fresh)

	now := time.Now()
	require.Equal(t, old, kidAt(t, k, now), "the new key is published before it signs")
	require.Equal(t, old, kidAt(t, k, now.Add(publishBefore-time.Minute)))
	require.Equal(t, fresh, kidAt(t, k, now.Add(publishBefore+time.Minute)))
	require.Equal(t, fresh, kidAt(t, k, now.Add(1000*time.Hour)))
	require.Equal(t, publishAfter, store.keys[0].RetiresAt.Sub(store.keys[1].SignsFrom))

	other := NewKeyring(newVault(t), store, nil)
	require.NoError(t, other.Ensure(t.Context()))
	require.Equal(t, old, kidAt(t, other, now))
	store.shift(publishBefore + time.Second)
	require.NoError(t, other.Refresh(t.Context()))
	require.Equal(t, fresh, kidAt(t, other, now))
}

func TestFirstKeysAndRotationsAtOnce(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	rings := make([]*Keyring, 10)
	var wg sync.WaitGroup
	for i := range rings {
		rings[i] = NewKeyring(newVault(t), store, nil)
		wg.Go(func() { require.NoError(t, rings[i].Ensure(t.Context())) })
	}
	wg.Wait()
	require.Len(t, store.keys, 1, "the first key is made once")
	require.NoError(t, rings[0].Ensure(t.Context()))
	for _, k := range rings {
		require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now()))
	}
	for _, k := range rings {
		wg.Go(func() { require.NoError(t, k.Rotate(t.Context())) })
	}
	wg.Wait()
	require.Len(t, store.keys, 11)
	for _, k := range rings {
		require.NoError(t, k.Refresh(t.Context()))
		require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now()))
		require.Equal(t, store.keys[10].KID, kidAt(t, k, time.Now().Add(publishBefore+time.Minute)))
	}
}

// Until the store's clock is reached, the first key is better than none.
func TestClockBehindTheStores(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	k := NewKeyring(newVault(t), store, nil)
	require.NoError(t, k.Ensure(t.Context()))
	require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now().Add(-time.Hour)))
	require.NoError(t, k.Rotate(t.Context()))
	require.Equal(t, store.keys[0].KID, kidAt(t, k, time.Now().Add(-time.Hour)))
}

func TestKeysOfAnotherMasterKey(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	require.NoError(t, NewKeyring(newVault(t), store, nil).Ensure(t.Context()))
	vault, err := NewVault(make([]byte, masterKeyBytes))
	require.NoError(t, err)
	for name, v := range map[string]*Vault{"another": vault, "none": nil} {
		k := NewKeyring(v, store, nil)
		require.ErrorContains(t, k.Ensure(t.Context()), "FORGERUN_MASTER_KEY", name)
		_, err = k.current(time.Now())
		require.ErrorIs(t, err, errNoKey)
		require.ErrorContains(t, k.Rotate(t.Context()), "FORGERUN_MASTER_KEY", name)
	}
	require.Len(t, store.keys, 1)
	require.Nil(t, store.keys[0].RetiresAt)
	require.ErrorContains(t, NewKeyring(nil, &memoryStore{}, nil).Ensure(t.Context()), "FORGERUN_MASTER_KEY", "none, and no key yet")
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
		"moved from another row": func(k *job.SigningKey) { k.Sealed = sealed(otherKID, private.Seed()) },
		"another private part":   func(k *job.SigningKey) { k.Sealed = sealed(kid, other.Seed()) },
		"cut off":                func(k *job.SigningKey) { k.Sealed = k.Sealed[:10] },
		"empty":                  func(k *job.SigningKey) { k.Sealed = []byte{} },
		"short":                  func(k *job.SigningKey) { k.Sealed = sealed(kid, []byte("short")) },
		"another id":             func(k *job.SigningKey) { k.KID = otherKID },
		"no public part":         func(k *job.SigningKey) { k.Public = nil },
		"of a file":              func(k *job.SigningKey) { k.Sealed = nil },
	} {
		key := good
		change(&key)
		require.Error(t, NewKeyring(v, &memoryStore{keys: []job.SigningKey{key}}, nil).Ensure(t.Context()), name)
	}
	require.NoError(t, NewKeyring(v, &memoryStore{keys: []job.SigningKey{good}}, nil).Ensure(t.Context()))
}

func TestRefreshThatFailsKeepsTheKeys(t *testing.T) {
	t.Parallel()
	store := &memoryStore{}
	k := NewKeyring(newVault(t), store, nil)
	require.NoError(t, k.Ensure(t.Context()))
	kid := kidAt(t, k, time.Now())
	store.err = errStore
	require.ErrorIs(t, k.Refresh(t.Context()), errStore)
	require.ErrorIs(t, k.Ensure(t.Context()), errStore)
	require.ErrorIs(t, k.Rotate(t.Context()), errStore)
	require.Equal(t, kid, kidAt(t, k, time.Now()))

	store.err = nil
	require.NoError(t, k.Rotate(t.Context()))
	store.keys = store.keys[:1] // a key that retires
	require.NoError(t, k.Refresh(t.Context()))
	_, err := k.current(time.Now().Add(publishBefore + publishAfter + time.Minute))
	require.ErrorIs(t, err, errNoKey, "a key that receivers cannot know any more does not sign")
}

func TestKeysOfAFile(t *testing.T) {
	t.Parallel()
	a, kidA := newKey(t)
	b, kidB := newKey(t)
	store := &memoryStore{}
	v := newVault(t)
	require.NoError(t, NewKeyring(v, store, nil).Ensure(t.Context()), "a key in the store comes before")

	first := NewKeyring(v, store, pemOf(t, a))
	for range 3 {
		require.NoError(t, first.Ensure(t.Context()))
	}
	require.Len(t, store.keys, 2, "registered once")
	require.Equal(t, kidA, store.keys[1].KID)
	require.Nil(t, store.keys[1].Sealed, "the private part stays in the file")
	require.Equal(t, store.keys[0].KID, kidAt(t, first, time.Now()))
	store.shift(publishBefore + time.Minute)
	require.NoError(t, first.Refresh(t.Context()))
	require.Equal(t, kidA, kidAt(t, first, time.Now()))

	second := NewKeyring(nil, store, pemOf(t, b, a)) // rotated; no master key is needed
	require.NoError(t, second.Ensure(t.Context()))
	require.Equal(t, kidA, kidAt(t, second, time.Now()))
	require.Equal(t, kidB, kidAt(t, second, time.Now().Add(publishBefore+time.Minute)))
	require.ErrorContains(t, second.Rotate(t.Context()), "file")

	require.NoError(t, first.Ensure(t.Context()), "a process with the older file goes on with its key")
	require.Equal(t, kidA, kidAt(t, first, time.Now()))
	require.Nil(t, store.keys[2].RetiresAt, "and does not retire the newer one")
	store.shift(publishBefore + time.Minute)
	require.ErrorContains(t, first.Refresh(t.Context()), kidB)
	require.Equal(t, kidA, kidAt(t, first, time.Now()), "until its key retires")
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	good, _ := newKey(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, file := range map[string][]byte{
		"empty":          {},
		"no PEM":         []byte("secret"),
		"another kind":   pemOf(t, ec),
		"not a key":      []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
		"a second wrong": pemOf(t, good, ec),
		"a public key": []byte("-----BEGIN PUBLIC KEY-----\n" +
			"MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n-----END PUBLIC KEY-----\n"),
	} {
		store := &memoryStore{}
		require.ErrorContains(t, NewKeyring(newVault(t), store, file).Ensure(t.Context()), "file of signing keys", name)
		require.Error(t, NewKeyring(newVault(t), store, file).Rotate(t.Context()), name)
		require.Empty(t, store.keys, name)
	}
}

// rfcSeeds are the private keys of examples: RFC 9421, appendix B.1.4; RFC
// 8032, section 7.1 (the first is that of RFC 8037, appendix A).
var rfcSeeds = map[string]string{
	"RFC 9421 test-key-ed25519": "9f8362f87a484a954e6e740c5b4c0e84229139a20aa8ab56ff66586f6a7d29c5",
	"RFC 8032 TEST 1, RFC 8037": "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
	"RFC 8032 TEST 2":           "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
	"RFC 8032 TEST 3":           "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
	"RFC 8032 TEST 1024":        "f5e5767cf153319517630f226876b86c8160cc583bc013744c6bf255f5cc0ee5",
	"RFC 8032 TEST SHA(abc)":    "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
}

func rfcKey(t testing.TB, name string) ed25519.PrivateKey {
	t.Helper()
	seed, err := hex.DecodeString(rfcSeeds[name])
	require.NoError(t, err)
	return ed25519.NewKeyFromSeed(seed)
}

func TestKeysOfTheRFCsAreRefused(t *testing.T) {
	t.Parallel()
	v := newVault(t)
	require.Len(t, exampleKeys, len(rfcSeeds))
	for name := range rfcSeeds {
		private := rfcKey(t, name)
		good, _ := newKey(t)
		for _, file := range [][]byte{pemOf(t, private), pemOf(t, good, private)} {
			store := &memoryStore{}
			require.ErrorIs(t, NewKeyring(v, store, file).Ensure(t.Context()), errExampleKey, name)
			require.Empty(t, store.keys)
		}
		key, err := newSigningKey(publicOf(private))
		require.NoError(t, err)
		key.Sealed = v.Seal(keyContext(key.KID), private.Seed())
		k := NewKeyring(v, &memoryStore{keys: []job.SigningKey{key}}, nil)
		require.ErrorIs(t, k.Ensure(t.Context()), errExampleKey, name)
		_, err = k.current(time.Now())
		require.Error(t, err)
	}
}

// The key and its thumbprint are those of RFC 8037, appendix A.
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
	k := NewKeyring(newVault(t), store, nil)
	require.NoError(t, k.Ensure(t.Context()))
	require.NoError(t, k.Rotate(t.Context()))
	text, err = Directory(store.keys)
	require.NoError(t, err)
	var set struct{ Keys []map[string]string }
	require.NoError(t, json.Unmarshal(text, &set))
	require.Len(t, set.Keys, 2)
	require.NotContains(t, string(text), `"d"`, "no private part")
}
