package proxy_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

// signedBy signs a delivery by a scheme, with a secret, at a time.
func signedBy(way string, h http.Header, body, secret string, at time.Time) {
	h.Set("Webhook-Id", "m1")
	t := fmt.Sprint(at.Unix())
	switch way {
	case "Standard Webhooks":
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			panic(err)
		}
		h.Set("Webhook-Timestamp", t)
		h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(sign(key, "m1."+t+"."+body)))
	case "Stripe":
		h.Set("Stripe-Signature", "t="+t+",v1="+hex.EncodeToString(sign([]byte(secret), t+"."+body)))
	case "GitHub":
		h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sign([]byte(secret), body)))
	case "RFC 9421":
		signing[way].sign(h, body)
	}
}

// A delivery with an invalid signature passes unchanged, despite any faults. A valid one may be signed again.
func TestSignaturesThatDoNotHoldStay(t *testing.T) {
	t.Parallel()
	const body, other = `{"type": "thing.done"}`, "whsec_b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcg=="
	old := time.Now().Add(-10 * time.Minute)
	for way := range signing {
		for name, c := range map[string]struct {
			send  func(h http.Header)
			holds bool
		}{
			"right":        {func(h http.Header) { signedBy(way, h, body, secret, time.Now()) }, true},
			"wrong secret": {func(h http.Header) { signedBy(way, h, body, other, time.Now()) }, way == "RFC 9421"},
			"wrong body":   {func(h http.Header) { signedBy(way, h, body+" ", secret, time.Now()) }, way == "RFC 9421"},
			"stale":        {func(h http.Header) { signedBy(way, h, body, secret, old) }, way == "GitHub" || way == "RFC 9421"},
			"ahead": {func(h http.Header) {
				signedBy(way, h, body, secret, time.Now().Add(time.Hour))
			}, way == "GitHub" || way == "RFC 9421"},
			"missing": {func(http.Header) {}, false},
			"no signature": {func(h http.Header) {
				signedBy(way, h, body, secret, time.Now())
				for _, name := range []string{"Webhook-Signature", "Stripe-Signature", "X-Hub-Signature-256", "Signature"} {
					if h.Get(name) != "" {
						h.Set(name, "v1,")
					}
				}
			}, way == "RFC 9421"},
			"two ways, one wrong": {func(h http.Header) {
				signedBy(way, h, body, secret, time.Now())
				second := map[bool]string{true: "Stripe", false: "GitHub"}[way == "GitHub"]
				signedBy(second, h, body, other, time.Now())
			}, false},
			"several, one right": {func(h http.Header) {
				signedBy(way, h, body, other, time.Now())
				wrong := h.Clone()
				signedBy(way, h, body, secret, time.Now())
				switch way {
				case "Standard Webhooks":
					h.Set("Webhook-Signature", wrong.Get("Webhook-Signature")+" "+h.Get("Webhook-Signature"))
				case "Stripe":
					h.Set("Stripe-Signature", h.Get("Stripe-Signature")+",v1="+strings.Repeat("0", 64)+",v0=x")
				}
			}, true},
		} {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				type got struct {
					header http.Header
					body   string
				}
				var all []got
				receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					text, _ := io.ReadAll(r.Body)
					all = append(all, got{r.Header, string(text)})
					w.WriteHeader(http.StatusUnauthorized)
				}))
				defer receiver.Close()
				p := proxy.New(must(url.Parse("http://127.0.0.1:1")), must(api.Parse(nil)), slog.New(slog.DiscardHandler))
				server := httptest.NewServer(p)
				defer server.Close()
				hook := httptest.NewServer(p.Hook(must(url.Parse(receiver.URL)), secret))
				defer hook.Close()
				client := plain(t) // a server that ends closes the idle connections of the default client
				b := &bench{t, server.URL, client}
				id := b.session("")
				b.own("PUT", "faults", `[{"match": {"operation": "delivery"}, "effect":
					{"padding": 100, "rotated_secret": true, "content_type": "application/x", "tamper": "timestamp"}}]`, 200)
				sent := http.Header{"Content-Type": {"application/json"}}
				c.send(sent)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hook.URL, strings.NewReader(body))
				require.NoError(t, err)
				r.Header = sent.Clone()
				res, err := client.Do(r)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.NotEmpty(t, all)
				last := all[len(all)-1]
				journal := string(b.own("GET", "sessions/"+id+"/journal", "", 200))
				if !c.holds {
					require.Len(t, all, 1, "nothing is forged of it either")
					require.Equal(t, body, last.body)
					for name := range sent {
						require.Equal(t, sent[name], last.header[name], name)
					}
					require.Contains(t, journal, "signature: does not hold")
					_, results := b.verdict(id)
					require.Equal(t, verdict.NotTested, results["deliveries-answered"].Status, "to refuse it is right")
					return
				}
				require.NotContains(t, journal, "does not hold")
				require.Equal(t, "application/x", last.header.Get("Content-Type"))
				if name == "right" {
					require.Equal(t, way != "RFC 9421", len(last.body) > len(body))
					require.True(t, signing[way].holds(last.header, last.body), last.header)
				}
			})
		}
	}
}
