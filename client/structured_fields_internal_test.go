package client

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

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

// The example of RFC 9421, appendix B.2.6.
func TestSignatureBaseOfRFC9421(t *testing.T) {
	t.Parallel()
	der, err := base64.StdEncoding.DecodeString("MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=")
	require.NoError(t, err)
	m := message{method: http.MethodPost, target: "https://example.com/foo?param=Value&Pet=dog", header: http.Header{
		"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
	}}
	const signed = `("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`
	inputs, err := parseDictionary(`sig-b26=` + signed)
	require.NoError(t, err)
	base, err := m.signatureBase(inputs[0], nil)
	require.NoError(t, err)
	require.Equal(t, `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": `+signed, string(base))
	signatures, err := parseDictionary(`sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:`)
	require.NoError(t, err)
	require.True(t, ed25519.Verify(der[len(der)-ed25519.PublicKeySize:], base, signatures[0].value.([]byte)))
}

// The form in which the service signs a URL that was registered.
func TestSignedURI(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://example.com":             "https://example.com/",
		"https://example.com?x=1":         "https://example.com/?x=1",
		"https://example.com/":            "https://example.com/",
		"https://example.com/?":           "https://example.com/?",
		"https://example.com/a%2Fb?x":     "https://example.com/a%2Fb?x",
		"https://Example.COM:443/A?B":     "https://example.com/A?B",
		"http://example.com:80":           "http://example.com/",
		"http://example.com:443/":         "http://example.com:443/",
		"https://example.com:80/":         "https://example.com:80/",
		"http://example.com:8080/":        "http://example.com:8080/",
		"HTTP://[2606:4700::1111]:80/":    "http://[2606:4700::1111]/",
		"https://[2606:4700::80]/":        "https://[2606:4700::80]/",
		"https://example.com:8443/#part":  "https://example.com:8443/",
		"https://example.com/?q=\u00fc":   "https://example.com/?q=%C3%BC",
		"https://example.com/\u00e4":      "https://example.com/%C3%A4",
		"https://example.com/%e4":         "https://example.com/%e4",
		"https://example.com/%7Etilde~":   "https://example.com/%7Etilde~",
		"https://example.com/a b?q=a%20b": "https://example.com/a%20b?q=a%20b",
		"https://example.com//a/./..":     "https://example.com//a/./..",
		"https://example.com/a;b=c,d":     "https://example.com/a;b=c,d",
		"/no/host":                        "/no/host",
		"https://[::1":                    "https://[::1",
	} {
		require.Equal(t, want, signedURI(given), given)
	}
}

func TestBackoffGrowsToItsEnd(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Second, exponential(time.Second, time.Minute, 1))
	require.Equal(t, 8*time.Second, exponential(time.Second, time.Minute, 4))
	require.Equal(t, time.Minute, exponential(time.Second, time.Minute, 1000), "without running over")
}
