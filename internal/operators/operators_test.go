package operators

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	first  = "0123456789abcdef"
	second = "fedcba9876543210"
	third  = "a:token:with:colons" // Parse ends the name at the first colon
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		operators, readers string
		want               map[string]Operator
	}{
		{"", "", map[string]Operator{}},
		{first, "", map[string]Operator{first: {Name: "admin"}}},
		{"", first, map[string]Operator{first: {Name: "reader", ReadOnly: true}}},
		{"ann:" + first + ",ci.bot-2:" + second, "dash:" + third, map[string]Operator{
			first: {Name: "ann"}, second: {Name: "ci.bot-2"}, third: {Name: "dash", ReadOnly: true},
		}},
		{"Upper:0123456789abcdef", "", map[string]Operator{"Upper:0123456789abcdef": {Name: "admin"}}},
	} {
		tokens, err := Parse(c.operators, c.readers)
		require.NoError(t, err)
		require.Equal(t, len(c.want) == 0, tokens.None())
		for token, want := range c.want {
			got, ok := tokens.Find(token)
			require.True(t, ok)
			require.Equal(t, want, got)
			_, ok = tokens.Find(token + "x")
			require.False(t, ok)
		}
		_, ok := tokens.Find("")
		require.False(t, ok)
		require.NotContains(t, fmt.Sprintf("%v", tokens), first)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ operators, readers, says string }{
		"short":               {"short", "", "fewer than 16 characters"},
		"short with a name":   {"ann:short", "", "ann"},
		"the second is short": {"ann:" + first + ",bob:short", "", "token 2 of 2 (bob)"},
		"nothing after comma": {first + ",", "", "token 2 of 2"},
		"two without names":   {first + "," + second, "", "called admin"},
		"one name":            {"ann:" + first, "ann:" + second, "called ann"},
		"one token":           {"ann:" + first, "bob:" + first, "ann and bob have the same token"},
	} {
		_, err := Parse(c.operators, c.readers)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), first, name)
		require.NotContains(t, err.Error(), second, name)
	}
}
