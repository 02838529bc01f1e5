package clients

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

func TestEveryTypoInAKeyIsRefused(t *testing.T) {
	t.Parallel()
	key, _ := newAPIKey()
	for i := range len(key) {
		typo := []byte(key)
		for c := range 256 {
			if byte(c) == key[i] {
				continue
			}
			typo[i] = byte(c)
			_, ok := parseAPIKey(string(typo))
			require.False(t, ok, "%q", typo)
		}
		for _, other := range []string{key[:i] + key[i+1:], key[:i] + "0" + key[i:], key[:i]} {
			if _, ok := parseAPIKey(other); ok {
				require.Equal(t, key, other)
			}
		}
		if i > 0 && key[i] != key[i-1] {
			swapped := []byte(key)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			_, ok := parseAPIKey(string(swapped))
			require.False(t, ok, "%q", swapped)
		}
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
