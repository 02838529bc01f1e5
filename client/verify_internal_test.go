package client

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"testing"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
)

// The example of RFC 9421, appendix B.2.6.
func TestSignatureBaseOfRFC9421(t *testing.T) {
	t.Parallel()
	der, err := base64.StdEncoding.DecodeString("MCowBQYDK2VwAyEAJrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=")
	require.NoError(t, err)
	m := message{method: http.MethodPost, target: "https://example.com/foo?param=Value&Pet=dog", header: http.Header{
		"Date": {"Tue, 20 Apr 2021 02:07:55 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"18"},
	}}
	const signed = `("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`
	inputs, err := dictionary(http.Header{"Signature-Input": {`sig-b26=` + signed}}, "Signature-Input")
	require.NoError(t, err)
	input, _ := inputs.Get("sig-b26")
	base, err := m.signatureBase(input.(httpsfv.InnerList), nil)
	require.NoError(t, err)
	require.Equal(t, `"date": Tue, 20 Apr 2021 02:07:55 GMT
"@method": POST
"@path": /foo
"@authority": example.com
"content-type": application/json
"content-length": 18
"@signature-params": `+signed, string(base))
	const encoded = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
	signature, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	require.True(t, ed25519.Verify(der[len(der)-ed25519.PublicKeySize:], base, signature))
}

// The service signs registered URLs in this form.
func TestSignedURI(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://example.com":             "https://example.com/",
		"https://example.com?x=1":         "https://example.com/?x=1",
		"https://Example.COM:443/A?B":     "https://example.com/A?B",
		"http://example.com:80":           "http://example.com/",
		"https://example.com:80/":         "https://example.com:80/",
		"HTTP://[2606:4700::1111]:80/":    "http://[2606:4700::1111]/",
		"https://example.com:8443/#part":  "https://example.com:8443/",
		"https://example.com/\u00e4":      "https://example.com/%C3%A4",
		"https://example.com/%e4":         "https://example.com/%e4",
		"https://example.com/a b?q=a%20b": "https://example.com/a%20b?q=a%20b",
		"https://example.com//a/./..":     "https://example.com//a/./..",
		"https://[::1":                    "https://[::1",
	} {
		require.Equal(t, want, signedURI(given), given)
	}
}
