package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// Faults never change a delivery with an invalid signature.
func TestInvalidSignaturesPassUnchanged(t *testing.T) {
	t.Parallel()
	const body, other = `{"type": "thing.done"}`, "whsec_b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcg=="
	now := time.Now()
	for name, scheme := range signing {
		for what, c := range map[string]struct {
			sign  func(h http.Header)
			holds bool
		}{
			"valid":        {func(h http.Header) { scheme.sign(h, body, secret, now) }, true},
			"wrong secret": {func(h http.Header) { scheme.sign(h, body, other, now) }, name == "RFC 9421"},
			"wrong body":   {func(h http.Header) { scheme.sign(h, body+" ", secret, now) }, name == "RFC 9421"},
			"old":          {func(h http.Header) { scheme.sign(h, body, secret, now.Add(-10*time.Minute)) }, name == "GitHub" || name == "RFC 9421"},
			"future":       {func(h http.Header) { scheme.sign(h, body, secret, now.Add(time.Hour)) }, name == "GitHub" || name == "RFC 9421"},
			"unsigned":     {func(http.Header) {}, false},
			"empty signature": {func(h http.Header) {
				scheme.sign(h, body, secret, now)
				for _, name := range []string{"Webhook-Signature", "Stripe-Signature", "X-Hub-Signature-256", "Signature"} {
					if h.Get(name) != "" {
						h.Set(name, "v1,")
					}
				}
			}, name == "RFC 9421"},
			"two schemes, one invalid": {func(h http.Header) {
				scheme.sign(h, body, secret, now)
				signing[map[bool]string{true: "Stripe", false: "GitHub"}[name == "GitHub"]].sign(h, body, other, now)
			}, false},
			"several signatures, one valid": {func(h http.Header) {
				scheme.sign(h, body, other, now)
				invalid := h.Clone()
				scheme.sign(h, body, secret, now)
				switch name {
				case "Standard Webhooks":
					h.Set("Webhook-Signature", invalid.Get("Webhook-Signature")+" "+h.Get("Webhook-Signature"))
				case "Stripe":
					h.Set("Stripe-Signature", h.Get("Stripe-Signature")+",v1="+strings.Repeat("0", 64)+",v0=x")
				}
			}, true},
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				type got struct {
					header http.Header
					body   string
				}
				var all []got
				b, send := hooked(t, secret, func(w http.ResponseWriter, r *http.Request) {
					text, _ := io.ReadAll(r.Body)
					all = append(all, got{r.Header, string(text)})
					w.WriteHeader(http.StatusUnauthorized)
				})
				id := b.session("")
				b.own("PUT", "faults", `[{"match": {"operation": "delivery"}, "effect":
					{"padding": 100, "rotated_secret": true, "content_type": "application/x", "tamper": "timestamp"}}]`, 200)
				sent := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {"m1"}}
				c.sign(sent)
				require.NoError(t, send(sent, body).err)
				require.NotEmpty(t, all)
				last := all[len(all)-1]
				journal := string(b.own("GET", "sessions/"+id+"/journal", "", 200))
				if !c.holds {
					require.Len(t, all, 1, "there is no forged request")
					require.Equal(t, body, last.body)
					for name := range sent {
						require.Equal(t, sent[name], last.header[name], name)
					}
					require.Contains(t, journal, "signature: invalid")
					_, results := b.verdict(id)
					require.Equal(t, verdict.NotTested, results["deliveries-answered"].Status, "a receiver should refuse it")
					return
				}
				require.NotContains(t, journal, "signature: invalid")
				require.Equal(t, "application/x", last.header.Get("Content-Type"))
				if what == "valid" {
					require.Equal(t, name != "RFC 9421", len(last.body) > len(body))
					require.True(t, scheme.verify(last.header, last.body), last.header)
				}
			})
		}
	}
}
