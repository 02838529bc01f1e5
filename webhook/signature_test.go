package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// The example of RFC 9421, appendix B.2.6. Ed25519 is deterministic, so the signature must be equal.
func TestSignatureOfRFC9421(t *testing.T) {
	t.Parallel()
	components := []field{
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

// The signature is an example of the Standard Webhooks libraries.
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
		require.NoError(t, verifyStandard(secret, []byte(body), header), "each secret verifies on its own")
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

type captured struct {
	scheme, method, host, target string
	header                       http.Header
	body                         []byte
}

var coveredName = regexp.MustCompile(`"([^"]+)"`)

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

// must returns the value of a call that has to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

func sendChanged(t *testing.T, e fault.Effect) (c captured, secret string, public ed25519.PublicKey) {
	t.Helper()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	p := sampleParcel(t)
	p.Target.URL = r.URL + "/in?x=1"
	require.Equal(t, job.SendError(""), s.SendChanged(t.Context(), p, e).Attempt.Error)
	secrets := must(s.reveal(p, time.Now()))(t)
	key := must(s.keys.current(time.Now()))(t)
	return r.all()[0], secrets[0], ed25519.PublicKey(key.Public)
}

func TestTamperedRequestsHaveNoValidSignature(t *testing.T) {
	t.Parallel()
	for _, tamper := range fault.Tampers {
		c, secret, public := sendChanged(t, fault.Effect{Tamper: tamper})
		require.Error(t, verifyStandard(secret, c.body, c.header), tamper)
		_, err := c.verify(public, time.Now())
		require.Error(t, err, tamper)
		require.Equal(t, deliveryID.String(), c.header.Get("Webhook-Id"))
		for _, name := range []string{"Signature", "Signature-Input", "Webhook-Signature", "Content-Digest"} {
			require.NotEmpty(t, c.header.Get(name), "%s: all headers are present", tamper)
		}
	}
}

func TestChangedDeliveriesAreValid(t *testing.T) {
	t.Parallel()
	const padding = 100_000
	for _, e := range []fault.Effect{
		{}, {Repeat: 1}, {RotatedSecret: true}, {Padding: padding}, {Extensions: true, JobStatus: "PONDERING"},
	} {
		c, secret, public := sendChanged(t, e)
		require.NoError(t, verifyStandard(secret, c.body, c.header), "%+v", e)
		_, err := c.verify(public, time.Now())
		require.NoError(t, err, "%+v", e)
		signatures := strings.Fields(c.header.Get("Webhook-Signature"))
		if e.RotatedSecret {
			require.Len(t, signatures, 2)
			c.header.Set("Webhook-Signature", signatures[0])
			require.Error(t, verifyStandard(secret, c.body, c.header), "the first one is another secret's")
			continue
		}
		require.Len(t, signatures, 1)
		require.Equal(t, e.Padding > 0, len(c.body) > padding)
		for _, text := range []string{`"jobStatus":"PONDERING"`, `"x_extension"`} {
			require.Equal(t, e.Extensions, strings.Contains(string(c.body), text))
		}
	}
}

const (
	ofTheEvent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampled  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestTraceparentOfDeliveries(t *testing.T) {
	t.Parallel()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tracetest.NewInMemoryExporter()))
	ctx, span := telemetry.Continue(t.Context(), provider.Tracer(telemetry.Scope), ofTheEvent, telemetry.SpanDeliver)
	defer span.End()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	for name, test := range map[string]struct {
		ctx    context.Context
		stored string
		want   []string
	}{
		"none":                {t.Context(), "", nil},
		"span of the attempt": {ctx, ofTheEvent, []string{telemetry.Traceparent(ctx)}},
		"span of the event":   {t.Context(), ofTheEvent, []string{ofTheEvent}},
		"not sampled":         {t.Context(), unsampled, []string{unsampled}},
		"line break":          {t.Context(), "01" + ofTheEvent[2:] + "\r\nX-Planted: 1", nil},
	} {
		p := sampleParcel(t)
		p.Target.URL, p.TraceParent = r.URL, test.stored
		require.Empty(t, s.Send(test.ctx, p).Attempt.Error, name)
		all := r.all()
		c := all[len(all)-1]
		require.Equal(t, test.want, c.header["Traceparent"], name)
		require.NotContains(t, c.header, "Tracestate", name)
		require.NotContains(t, c.header, "X-Planted", name)
		names, err := c.verify(publicKey(t, s), time.Now())
		require.NoError(t, err, name)
		require.NotContains(t, names, "traceparent", name)
	}
	require.NotEqual(t, ofTheEvent, telemetry.Traceparent(ctx), "the attempt has its own span")
	require.True(t, strings.HasPrefix(telemetry.Traceparent(ctx), ofTheEvent[:35]))
}
