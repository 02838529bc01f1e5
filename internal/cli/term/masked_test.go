package term

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Bearer tokens SHOULD NOT be passed in page URLs": "Bearer tokens SHOULD NOT be passed in page URLs",
		"a Bearer token.":              "a Bearer token.",
		"Authorization: Bearer tok1":   "Authorization: Bearer ***",
		"Bearer tokens1 of frk_abc":    "Bearer *** of frk_***",
		"whsec_a, Bearer hush\x1b[2J.": "whsec_***, Bearer ***",
	} {
		require.Equal(t, want, Masked(text))
	}
}
