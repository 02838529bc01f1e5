package webhook

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
		require.NotEqual(t, sealed, v.Seal("row:1", plain), "each time another nonce")

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
	secrets := NewSecrets(newVault(t))
	secret, sealed, err := secrets.New(webhookID)
	require.NoError(t, err)
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	require.True(t, ok)
	random := must(base64.StdEncoding.DecodeString(encoded))(t)
	require.Len(t, random, 32)
	require.NotContains(t, string(sealed), string(random))

	revealed := must(secrets.Reveal(webhookID, sealed))(t)
	require.Equal(t, secret, revealed)
	_, err = secrets.Reveal(job.ID{1}, sealed)
	require.ErrorContains(t, err, "FORGERUN_MASTER_KEY", "another webhook's secret")
	require.NotContains(t, err.Error(), encoded)

	other, _, err := secrets.New(webhookID)
	require.NoError(t, err)
	require.NotEqual(t, secret, other)
}
