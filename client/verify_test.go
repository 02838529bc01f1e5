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
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestRealDeliveriesAreVerified(t *testing.T) {
	t.Parallel()
	c := capture(t)
	for name, d := range c.deliveries {
		at := signedAt(t, d)
		both := client.Verifier{Secret: c.secrets[name], Keys: keysOf(c.keys), URL: d.url, Now: func() time.Time { return at }}
		bySecret, byKey := both, both
		bySecret.Keys, byKey.Secret = nil, ""
		for _, v := range []client.Verifier{bySecret, byKey} {
			require.NoError(t, second(v.Verify(d.request())), name)
		}
		m, err := both.Verify(d.request())
		require.NoError(t, err, name)
		if d.header.Get("Ce-Id") != "" {
			require.Equal(t, string(d.body), string(m.Data))
		}
		require.Equal(t, name, m.Name)
		require.NotEmpty(t, m.EventID)
		require.Equal(t, d.header.Get("Webhook-Id"), m.WebhookID)
		require.False(t, m.Time.IsZero())
		if name == "webhook.test" {
			require.Empty(t, m.JobID())
			require.Zero(t, m.Sequence)
			continue
		}
		o := must(m.Outcome())(t)
		require.Equal(t, m.JobID(), o.JobID)
		require.Positive(t, m.Sequence)
		require.Equal(t, name == "job.failed", o.Retryable())
	}
}

func TestVerifyRefusesWithTheSecret(t *testing.T) {
	t.Parallel()
	c := capture(t)
	good, secret := c.deliveries["job.failed"], c.secrets["job.failed"]
	at := signedAt(t, good)
	verify := func(d delivery, now time.Time) error {
		v := client.Verifier{Secret: secret, Now: func() time.Time { return now }}
		_, err := v.Verify(d.request())
		return err
	}
	for name, change := range map[string]func(d *delivery){
		"another body":       func(d *delivery) { d.body[0] ^= 1 },
		"a longer body":      func(d *delivery) { d.body = append(d.body, ' ') },
		"another id":         func(d *delivery) { d.header.Set("Webhook-Id", "x") },
		"no id":              func(d *delivery) { d.header.Del("Webhook-Id") },
		"two ids":            func(d *delivery) { d.header.Add("Webhook-Id", "x") },
		"another time":       func(d *delivery) { d.header.Set("Webhook-Timestamp", fmt.Sprint(at.Unix()+1)) },
		"no number":          func(d *delivery) { d.header.Set("Webhook-Timestamp", "now") },
		"a signed number":    func(d *delivery) { d.header.Set("Webhook-Timestamp", "+"+d.header.Get("Webhook-Timestamp")) },
		"no time":            func(d *delivery) { d.header.Del("Webhook-Timestamp") },
		"no signature":       func(d *delivery) { d.header.Del("Webhook-Signature") },
		"an empty signature": func(d *delivery) { d.header.Set("Webhook-Signature", "v1,") },
		"a short signature":  func(d *delivery) { d.header.Set("Webhook-Signature", d.header.Get("Webhook-Signature")[:20]) },
		"of another kind":    func(d *delivery) { d.header.Set("Webhook-Signature", "v2"+d.header.Get("Webhook-Signature")[2:]) },
		"too many signatures": func(d *delivery) {
			d.header.Set("Webhook-Signature", strings.Repeat("v1,AA== ", 16)+d.header.Get("Webhook-Signature"))
		},
	} {
		require.ErrorIs(t, verify(good.changed(change), at), client.ErrSignature, name)
	}
	for _, off := range []time.Duration{-5 * time.Minute, 5 * time.Minute} {
		require.NoError(t, verify(good, at.Add(off)))
		require.ErrorIs(t, verify(good, at.Add(off+off/300)), client.ErrSignature)
	}
	several := good.changed(func(d *delivery) {
		d.header["Webhook-Signature"] = []string{"v1a,AAAA v1,AAAA " + d.header.Get("Webhook-Signature"), "v1,!"}
	})
	require.NoError(t, verify(several, at), "one of them is enough")
	for _, bad := range []string{"", "whsec_", "whsec_!", "not base64!"} {
		v := client.Verifier{Secret: bad, Now: func() time.Time { return at }}
		_, err := v.Verify(good.request())
		require.Error(t, err)
		require.False(t, errors.Is(err, client.ErrSignature), "it is the receiver's mistake")
	}
}

// The parts of what is signed are separated by dots. A body that has them could be cut into another id, time and body.
func TestVerifyRefusesPartsThatWereShifted(t *testing.T) {
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

// The vector that the libraries of Standard Webhooks test with.
func TestVerifyStandardWebhooks(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
		"Ce-Id":             {"e"}, "Ce-Type": {"t"}, // not signed: what makes it a CloudEvent
	}
	d := delivery{header: header, body: []byte(`{"test": 2432232314}`)}
	v := client.Verifier{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Now: func() time.Time { return time.Unix(1614265330, 0) }}
	require.NoError(t, second(v.Verify(d.request())))
	v.Secret = strings.TrimPrefix(v.Secret, "whsec_")
	require.NoError(t, second(v.Verify(d.request())))
	header.Del("Ce-Id")
	require.ErrorIs(t, second(v.Verify(d.request())), client.ErrSignature, "signed, and not as the service sends it")
}

// signer signs as ForgeRun does, or almost.
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
		_, err := v.Verify(d.request())
		return err
	}
	good := signer{private, covered, params}.sign(plain)
	require.NoError(t, verify(good, at))
	require.NoError(t, verify(good.changed(func(d *delivery) { d.header.Set("Traceparent", "00-of-a-proxy") }), at))

	for name, change := range map[string]func(d *delivery){
		"another method":     func(d *delivery) { d.method = "PUT" },
		"another URL":        func(d *delivery) { d.url += "?x" },
		"another body":       func(d *delivery) { d.body[0] ^= 1 },
		"another digest":     func(d *delivery) { d.header.Set("Content-Digest", "sha-256=:AAAA:") },
		"two digests":        func(d *delivery) { d.header.Add("Content-Digest", "sha-512=:AAAA:") },
		"no digest":          func(d *delivery) { d.header.Del("Content-Digest") },
		"another type":       func(d *delivery) { d.header.Set("Content-Type", problemType) },
		"another webhook-id": func(d *delivery) { d.header.Set("Webhook-Id", "x") },
		"another ce-type":    func(d *delivery) { d.header.Set("Ce-Type", "job.succeeded") },
		"a ce- header more":  func(d *delivery) { d.header.Set("Ce-Tenant", "x") },
		"a ce- header less":  func(d *delivery) { d.header.Del("Ce-Type") },
		"no Signature-Input": func(d *delivery) { d.header.Del("Signature-Input") },
		"no Signature":       func(d *delivery) { d.header.Del("Signature") },
		"a signature of zeros": func(d *delivery) {
			d.header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(make([]byte, 64))+":")
		},
		"a short signature": func(d *delivery) { d.header.Set("Signature", "sig1=:AAAA:") },
		"of another name":   func(d *delivery) { d.header.Set("Signature", "x"+d.header.Get("Signature")) },
		"not structured":    func(d *delivery) { d.header.Set("Signature-Input", "sig1=(") },
		"not a list":        func(d *delivery) { d.header.Set("Signature-Input", "sig1=1"+params) },
		"other params":      func(d *delivery) { d.header.Set("Signature-Input", d.header.Get("Signature-Input")+";nonce=1") },
		"many others before it": func(d *delivery) {
			d.header.Set("Signature-Input", strings.Join(many(20, params), ", ")+", "+d.header.Get("Signature-Input"))
		},
		"larger than any header": func(d *delivery) { d.header.Set("Signature", strings.Repeat("a", 20<<10)) },
	} {
		require.ErrorIs(t, verify(good.changed(change), at), client.ErrSignature, name)
	}
	for i := range covered { // signed by the right key, but of too little
		var less []string
		less = append(append(less, covered[:i]...), covered[i+1:]...)
		require.ErrorIs(t, verify(signer{private, less, params}.sign(plain), at), client.ErrSignature, covered[i])
	}
	for name, s := range map[string]signer{
		"twice the same component": {private, append([]string{"webhook-id"}, covered...), params},
		"no created":               {private, covered, `;expires=1896177901;keyid="k";alg="ed25519"`},
		"no expires":               {private, covered, `;created=1896177601;keyid="k";alg="ed25519"`},
		"created as text":          {private, covered, `;created="1896177601";expires=1896177901;keyid="k";alg="ed25519"`},
		"another algorithm":        {private, covered, `;created=1896177601;expires=1896177901;keyid="k";alg="hmac-sha256"`},
		"no algorithm":             {private, covered, `;created=1896177601;expires=1896177901;keyid="k"`},
		"an unknown key":           {private, covered, `;created=1896177601;expires=1896177901;keyid="other";alg="ed25519"`},
		"no key":                   {private, covered, `;created=1896177601;expires=1896177901;alg="ed25519"`},
		"of another's key":         {ed25519.NewKeyFromSeed(make([]byte, 32)), covered, params},
	} {
		require.ErrorIs(t, verify(s.sign(plain), at), client.ErrSignature, name)
	}
	for offset, valid := range map[time.Duration]bool{
		-time.Minute: true, -time.Minute - time.Second: false, 6 * time.Minute: true, 6*time.Minute + time.Second: false,
	} {
		require.Equal(t, valid, verify(good, at.Add(offset)) == nil, offset)
	}
	second := good.changed(func(d *delivery) {
		d.header.Set("Signature-Input", `other=("@method");created=1;expires=2, `+d.header.Get("Signature-Input"))
		d.header.Set("Signature", "other=:AAAA:, "+d.header.Get("Signature"))
	})
	require.NoError(t, verify(second, at), "one that holds is enough")
	empty := plain
	empty.url = "https://example.com/"
	empty = signer{private, covered, params}.sign(empty)
	empty.url = "https://example.com"
	require.NoError(t, verify(empty, at), "a URL without a path")
	empty.url = "HTTPS://Example.COM:443"
	require.NoError(t, verify(empty, at), "as it was registered, not as it is signed")

	unavailable := errors.New("the directory cannot be read")
	keys := func(string) (ed25519.PublicKey, error) { return nil, unavailable }
	v := client.Verifier{Now: func() time.Time { return at }, URL: good.url, Keys: keys}
	_, err = v.Verify(good.request())
	require.ErrorIs(t, err, unavailable)
	require.False(t, errors.Is(err, client.ErrSignature), "the sender may be right")
}

// What the receiver got wrong, or could not read, says nothing about the message.
func TestVerifyNeedsWhatItChecksWith(t *testing.T) {
	t.Parallel()
	c := capture(t)
	d := c.deliveries["job.failed"]
	for _, v := range []client.Verifier{{}, {URL: d.url}, {Keys: keysOf(c.keys)}, {Secret: c.secrets["job.failed"], Keys: keysOf(c.keys)}} {
		_, err := v.Verify(d.request())
		require.Error(t, err)
		require.False(t, errors.Is(err, client.ErrSignature), err)
	}
	v := client.Verifier{Secret: c.secrets["job.failed"]}
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
