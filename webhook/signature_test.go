package webhook

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// The example of RFC 9421, appendix B.2.6: Ed25519 is deterministic, so the
// signature is this one.
func TestSignatureOfRFC9421(t *testing.T) {
	t.Parallel()
	components := []component{
		{"date", "Tue, 20 Apr 2021 02:07:55 GMT"}, {"@method", "POST"}, {"@path", "/foo"}, {"@authority", "example.com"},
		{"content-type", "application/json"}, {"content-length", "18"},
	}
	params := httpsfv.NewParams()
	params.Add("created", int64(1618884473))
	params.Add("keyid", "test-key-ed25519")
	input, signature, err := sign("sig-b26", components, params, rfcKey(t, "RFC 9421 test-key-ed25519"))
	require.NoError(t, err)
	require.Equal(t, `sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length")`+
		`;created=1618884473;keyid="test-key-ed25519"`, input)
	require.Equal(t, "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:", signature)
}

// The examples of RFC 9530, appendix D.
func TestContentDigestOfRFC9530(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"{\"hello\": \"world\"}\n": "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:",
		"":                         "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
	} {
		digest := must(contentDigest([]byte(body)))(t)
		require.Equal(t, want, digest)
	}
}

// The example of the Standard Webhooks libraries, and what their verifier says.
func TestStandardSignatures(t *testing.T) {
	t.Parallel()
	const id, body, first = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signature := must(standardSignature([]string{first}, id, []byte(body), time.Unix(1614265330, 0)))(t)
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", signature)

	now := time.Now()
	second := secretText(bytes.Repeat([]byte{9}, secretBytes))
	signature = must(standardSignature([]string{first, second}, id, []byte(body), now))(t)
	require.Len(t, strings.Fields(signature), 2)
	header := http.Header{}
	header.Set("webhook-id", id)
	header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	header.Set("webhook-signature", signature)
	for _, secret := range []string{first, second} {
		require.NoError(t, verifyStandard(secret, []byte(body), header), "each secret verifies alone")
		require.Error(t, verifyStandard(secret, []byte(body+" "), header))
	}
	require.Error(t, verifyStandard(secretText(make([]byte, secretBytes)), []byte(body), header))

	_, err := standardSignature([]string{"whsec_!"}, id, nil, now)
	require.Error(t, err)
}

func verifyStandard(secret string, body []byte, header http.Header) error {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return verifier.Verify(body, header)
}

// captured is a request as a receiver has it.
type captured struct {
	scheme, method, host, target string
	header                       http.Header
	body                         []byte
}

var coveredName = regexp.MustCompile(`"([^"]+)"`)

// verify checks the HTTP message signature and the digest of a request as a receiver does, who takes nothing but the request
// itself and a key. It gives the components that are covered.
func (c captured) verify(public ed25519.PublicKey, now time.Time) (covered []string, err error) {
	v := client.Verifier{URL: c.scheme + "://" + c.host + c.target, Now: func() time.Time { return now }}
	v.Keys = func(id string) (ed25519.PublicKey, error) {
		if kid, err := thumbprint(public); err != nil || kid != id {
			return nil, errors.Join(err, errors.New("another key"))
		}
		return public, nil
	}
	if _, err := v.Verify(&http.Request{Method: c.method, Header: c.header, Body: io.NopCloser(bytes.NewReader(c.body))}); err != nil {
		return nil, err
	}
	list, _, _ := strings.Cut(c.header.Get("Signature-Input"), ")")
	for _, name := range coveredName.FindAllStringSubmatch(list, -1) {
		covered = append(covered, name[1])
	}
	return covered, nil
}

// must gives the value of a call that has to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
