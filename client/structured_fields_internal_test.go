package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseDictionary(t *testing.T) {
	t.Parallel()
	all, err := parseDictionary(`sig1=("@method" "a";sf);created=12;keyid="k\"\\";alg=tok;b=:AQI=:,` + " \t" + `x, y=?0;z, n=-5, *k="s"`)
	require.NoError(t, err)
	require.Len(t, all, 5)
	require.Equal(t, items{{value: "@method"}, {value: "a", params: params{"sf": true}}}, all[0].value)
	require.Equal(t, params{"created": int64(12), "keyid": `k"\`, "alg": token("tok"), "b": []byte{1, 2}}, all[0].params)
	require.Equal(t, `("@method" "a";sf);created=12;keyid="k\"\\";alg=tok;b=:AQI=:`, all[0].raw)
	require.Equal(t, true, all[1].value)
	require.Equal(t, false, all[2].value)
	require.Equal(t, int64(-5), all[3].value)
	require.Equal(t, "s", all[4].value)
	none, err := parseDictionary("")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestParseDictionaryRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`a=1,`, `,a`, `a=`, `A=1`, `1=1`, `a=1 b=2`, `a=1;`, `a=1; b`, `a=1;b=`, `a=1.5`, `a=-`, `a=1234567890123456`, `a="x`, `a="\n"`,
		"a=\"\x01\"", `a="é"`,
		`a=:AQ:`, `a=:AQI=`, `a=:A!==:`, "a=:AQ\nI=:", `a=:AR==:`, `a=("x"`, `a=("x"  "y")`, `a=( "x")`, `a=("x""y")`, `a=("x")y`, `a=(("x"))`,
		`a=?2`, `a=1, a=2`,
		`a=1;b;b`, `a==1`, `=1`, `a=;b`, `a=@x`, strings.Repeat("a", maxFields+1),
	} {
		_, err := parseDictionary(text)
		require.Error(t, err, "%.60q", text)
	}
}

// FuzzParseDictionary reads anything; what it accepts, it has read to the end.
func FuzzParseDictionary(f *testing.F) {
	f.Add(`sig1=("@method" "a";sf);created=12;keyid="k", x=:AQI=:`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseDictionary(text)
		if err != nil {
			return
		}
		parts := make([]string, 0, len(all))
		for _, m := range all {
			require.Contains(t, text, m.raw)
			if m.raw == "" || m.raw[0] == ';' {
				parts = append(parts, m.key+m.raw)
			} else {
				parts = append(parts, m.key+"="+m.raw)
			}
		}
		again, err := parseDictionary(strings.Join(parts, ", "))
		require.NoError(t, err)
		require.Equal(t, len(all), len(again))
		for i := range all {
			require.Equal(t, all[i], again[i])
		}
	})
}
