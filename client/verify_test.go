package client_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestVerifyRefusesWithTheSecret(t *testing.T) {
	t.Parallel()
	c := capture(t)
	good := c.failed
	at := signedAt(t, good)
	verify := func(d delivery, secret string, now time.Time) error {
		v := client.Verifier{Secret: secret, Now: func() time.Time { return now }}
		return second(v.Verify(d.request()))
	}
	secret, signature := c.secret, good.header.Get("Webhook-Signature")
	bad := []delivery{
		good.changed(func(d *delivery) { d.body[0] ^= 1 }), good.changed(func(d *delivery) { d.body = append(d.body, ' ') }),
	}
	for name, values := range map[string][]string{
		"Webhook-Id": {"x", "-", "+x"}, "Webhook-Timestamp": {fmt.Sprint(at.Unix() + 1), "now", "-", " +" + fmt.Sprint(at.Unix())},
		"Webhook-Signature": {"-", "v1,", signature[:20], "v2" + signature[2:], strings.Repeat("v1,AA== ", 16) + signature},
	} {
		for _, value := range values {
			bad = append(bad, good.with(name, value))
		}
	}
	for _, d := range bad {
		require.ErrorIs(t, verify(d, secret, at), client.ErrSignature, d.header)
	}
	for _, off := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
		require.NoError(t, verify(good, secret, at.Add(off)))
		require.ErrorIs(t, verify(good, secret, at.Add(off+off/300)), client.ErrSignature)
	}
	several := good.with("Webhook-Signature", "v1a,AAAA v1,AAAA "+signature).with("Webhook-Signature", "+v1,!")
	require.NoError(t, verify(several, secret, at), "one valid signature is enough")
	for _, odd := range []string{"", "whsec_", "whsec_!", "not base64!"} {
		err := verify(good, odd, at)
		require.Error(t, err)
		require.NotErrorIs(t, err, client.ErrSignature, "the configured secret is invalid")
	}
}

// Dots separate the signed id, time and body. If the id had dots, a part of the body could count as the time. Verify refuses such ids.
func TestVerifyRefusesShiftedParts(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	later := time.Unix(1896177601, 0)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, `w.1893585601.{"correlationId":"x.%d.y"}`, later.Unix())
	header := http.Header{
		"Webhook-Id": {`w.1893585601.{"correlationId":"x`}, "Webhook-Timestamp": {fmt.Sprint(later.Unix())},
		"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
	}
	v := client.Verifier{Secret: "whsec_" + base64.StdEncoding.EncodeToString(key), Now: func() time.Time { return later }}
	_, err := v.Verify(delivery{header: header, body: []byte(`y"}`)}.request())
	require.ErrorIs(t, err, client.ErrSignature)
	require.ErrorContains(t, err, "webhook-id has a dot")
}

// The test vector of the Standard Webhooks libraries.
func TestVerifyStandardWebhooks(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"Ce-Id":             {"e"}, "Ce-Type": {"t"}, // not signed, but needed for a CloudEvent
	}
	d := delivery{header: header, body: []byte(`{"test": 2432232314}`)}
	v := client.Verifier{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Now: func() time.Time { return time.Unix(1614265330, 0) }}
	require.NoError(t, second(v.Verify(d.request())))
	v.Secret = strings.TrimPrefix(v.Secret, "whsec_")
	require.NoError(t, second(v.Verify(d.request())))
	header.Del("Ce-Id")
	require.ErrorIs(t, second(v.Verify(d.request())), client.ErrSignature, "signed, but not a CloudEvent")
}

type signer struct {
	key        ed25519.PrivateKey
	components []string
	params     string
}

var covered = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id", "ce-id", "ce-type"}

func (s signer) sign(d delivery) delivery {
	var quoted []string
	base := ""
	for _, name := range s.components {
		value := strings.Join(d.header.Values(name), ", ")
		switch name {
		case "@method":
			value = d.method
		case "@target-uri":
			value = d.url
		}
		quoted = append(quoted, `"`+name+`"`)
		base += `"` + name + `": ` + value + "\n"
	}
	input := "(" + strings.Join(quoted, " ") + ")" + s.params
	signature := ed25519.Sign(s.key, []byte(base+`"@signature-params": `+input))
	return d.changed(func(d *delivery) {
		d.header.Set("Signature-Input", "sig1="+input)
		d.header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	})
}

func TestVerifyRefusesWithAKey(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	at := time.Unix(1896177601, 0)
	const params = `;created=1896177601;expires=1896177901;keyid="k";alg="ed25519"`
	body := []byte(`{"jobId":"j"}`)
	sum := sha256.Sum256(body)
	plain := delivery{http.MethodPost, "https://example.com/in", http.Header{
		"Content-Type": {jsonType}, "Content-Digest": {"sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"},
		"Webhook-Id": {"w"}, "Ce-Id": {"e"}, "Ce-Type": {"job.failed"},
	}, body}
	verify := func(d delivery, now time.Time) error {
		keys := keysOf(map[string]ed25519.PublicKey{"k": public})
		v := client.Verifier{Keys: keys, URL: d.url, Now: func() time.Time { return now }}
		return second(v.Verify(d.request()))
	}
	good := signer{private, covered, params}.sign(plain)
	require.NoError(t, verify(good, at))
	require.NoError(t, verify(good.with("Traceparent", "00-of-a-proxy"), at))

	bad := []delivery{
		good.changed(func(d *delivery) { d.method = "PUT" }), good.changed(func(d *delivery) { d.url += "?x" }),
		good.changed(func(d *delivery) { d.body[0] ^= 1 }), signer{ed25519.NewKeyFromSeed(make([]byte, 32)), covered, params}.sign(plain),
		signer{private, append([]string{"webhook-id"}, covered...), params}.sign(plain), // a duplicate component
	}
	input, signature := good.header.Get("Signature-Input"), good.header.Get("Signature")
	for name, values := range map[string][]string{
		"Content-Digest": {"sha-256=:AAAA:", "+sha-512=:AAAA:", "-"}, "Content-Type": {problemType}, "Webhook-Id": {"x"},
		"Ce-Type": {"job.succeeded", "-"}, "Ce-Tenant": {"x"},
		"Signature-Input": {"-", "sig1=(", "sig1=1" + params, input + ";nonce=1", strings.Join(many(20, params), ", ") + ", " + input},
		"Signature": {"-", "sig1=:" + base64.StdEncoding.EncodeToString(make([]byte, 64)) + ":", "sig1=:AAAA:", "x" + signature,
			strings.Repeat("a", 20<<10)},
	} {
		for _, value := range values {
			bad = append(bad, good.with(name, value))
		}
	}
	for i := range covered { // the right key, but one component is missing
		bad = append(bad, signer{private, slices.Delete(slices.Clone(covered), i, i+1), params}.sign(plain))
	}
	for _, odd := range []string{
		`;expires=1896177901;keyid="k";alg="ed25519"`, `;created=1896177601;keyid="k";alg="ed25519"`,
		`;created="1896177601";expires=1896177901;keyid="k";alg="ed25519"`, `;created=1896177601;expires=1896177901;keyid="k";alg="hmac-sha256"`,
		`;created=1896177601;expires=1896177901;keyid="k"`, `;created=1896177601;expires=1896177901;keyid="other";alg="ed25519"`,
		`;created=1896177601;expires=1896177901;alg="ed25519"`,
	} {
		bad = append(bad, signer{private, covered, odd}.sign(plain))
	}
	for i, d := range bad {
		require.ErrorIs(t, verify(d, at), client.ErrSignature, "%d: %v", i, d)
	}
	for offset, valid := range map[time.Duration]bool{
		-time.Minute: true, -time.Minute - time.Second: false, 6 * time.Minute: true, 6*time.Minute + time.Second: false,
	} {
		require.Equal(t, valid, verify(good, at.Add(offset)) == nil, offset)
	}
	other := good.with("Signature-Input", `other=("@method");created=1;expires=2, `+input).with("Signature", "other=:AAAA:, "+signature)
	require.NoError(t, verify(other, at), "one valid signature is enough")
	signed := plain
	signed.url = "https://example.com/"
	signed = signer{private, covered, params}.sign(signed)
	for _, registered := range []string{"https://example.com", "HTTPS://Example.COM:443"} {
		signed.url = registered
		require.NoError(t, verify(signed, at), "the registered URL is normalized")
	}
	unavailable := errors.New("the directory cannot be read")
	keys := func(string) (ed25519.PublicKey, error) { return nil, unavailable }
	v := client.Verifier{Now: func() time.Time { return at }, URL: good.url, Keys: keys}
	err = second(v.Verify(good.request()))
	require.ErrorIs(t, err, unavailable)
	require.NotErrorIs(t, err, client.ErrSignature, "the signature was not checked")
}

func TestVerifyReportsReceiverMistakes(t *testing.T) {
	t.Parallel()
	c := capture(t)
	d := c.failed
	for _, v := range []client.Verifier{{}, {URL: d.url}, {Keys: keysOf(c.keys)}, {Secret: c.secret, Keys: keysOf(c.keys)}} {
		_, err := v.Verify(d.request())
		require.Error(t, err)
		require.False(t, errors.Is(err, client.ErrSignature), err)
	}
	v := client.Verifier{Secret: c.secret}
	r := d.request()
	r.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
	_, err := v.Verify(r)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.False(t, errors.Is(err, client.ErrSignature))
	r.Body = io.NopCloser(bytes.NewReader(make([]byte, 8<<20+1)))
	require.ErrorIs(t, second(v.Verify(r)), client.ErrSignature)
}

func many(n int, params string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`x%d=("@method")%s`, i, params)
	}
	return all
}
