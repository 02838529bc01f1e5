package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func signingKey(kid string) job.SigningKey {
	return job.SigningKey{KID: kid, Public: make([]byte, 32), Sealed: []byte("sealed " + kid)}
}

func (f *fixture) signingKeys() []job.SigningKey {
	f.t.Helper()
	keys, err := f.store.SigningKeys(f.ctx())
	require.NoError(f.t, err)
	return keys
}

func (f *fixture) addSigningKey(kid string, onlyFirst bool) {
	f.t.Helper()
	require.NoError(f.t, f.store.AddSigningKey(f.ctx(), signingKey(kid), onlyFirst, 10*time.Minute, 24*time.Hour))
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.Empty(t, f.signingKeys())
	f.addSigningKey("a", false)
	keys := f.signingKeys()
	require.Equal(t, []any{"a", "sealed a"}, []any{keys[0].KID, string(keys[0].Sealed)})
	require.WithinDuration(t, time.Now(), keys[0].SignsFrom, time.Minute, "the first one signs at once")
	require.Nil(t, keys[0].RetiresAt)

	f.addSigningKey("x", true)
	require.Equal(t, keys, f.signingKeys(), "there is one already")
	f.addSigningKey("a", false)
	require.Equal(t, keys, f.signingKeys(), "it is known")

	f.addSigningKey("b", false)
	keys = f.signingKeys()
	require.Len(t, keys, 2)
	require.Equal(t, "b", keys[1].KID)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), keys[1].SignsFrom, time.Minute)
	require.Equal(t, keys[1].SignsFrom.Add(24*time.Hour), *keys[0].RetiresAt)
	f.addSigningKey("b", false)
	require.Equal(t, keys, f.signingKeys(), "repeated, it changes nothing")

	f.addSigningKey("a", false)
	keys = f.signingKeys()
	require.Equal(t, "a", keys[1].KID, "one that was on its way out is the newest again")
	require.Nil(t, keys[1].RetiresAt)
	require.NotNil(t, keys[0].RetiresAt)

	f.exec(`UPDATE signing_keys SET retires_at = clock_timestamp() WHERE kid = 'b'`)
	require.Len(t, f.signingKeys(), 1)
	f.clean(100)
	require.Equal(t, 1, f.count("signing_keys"))
}

func TestTenProcessesMakeOneFirstKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	inParallel(10, func(i int) {
		s := repotest.OpenURL(t, f.url)
		require.NoError(t, s.AddSigningKey(f.ctx(), signingKey(string(rune('a'+i))), true, time.Minute, time.Hour))
	})
	require.Len(t, f.signingKeys(), 1)
	require.Nil(t, f.signingKeys()[0].RetiresAt)
}
