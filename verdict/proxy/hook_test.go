package proxy_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
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
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/proxy"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func sign(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = io.WriteString(m, text)
	return m.Sum(nil)
}

// signing are the signing schemes of common APIs: the sender's headers, and the receiver's check.
var signing = map[string]struct {
	sign  func(h http.Header, body string)
	holds func(h http.Header, body string) bool
}{
	"Standard Webhooks": {
		func(h http.Header, body string) {
			h.Set("Webhook-Timestamp", fmt.Sprint(time.Now().Unix()))
			key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(
				sign(key, h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."+body)))
		},
		func(h http.Header, body string) bool {
			key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
			want := "v1," + base64.StdEncoding.EncodeToString(sign(key, h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."+body))
			return recent(h.Get("Webhook-Timestamp")) && strings.Contains(" "+h.Get("Webhook-Signature")+" ", " "+want+" ")
		},
	},
	"Stripe": {
		func(h http.Header, body string) {
			now := time.Now().Unix()
			h.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", now, sign([]byte(secret), fmt.Sprintf("%d.%s", now, body))))
		},
		func(h http.Header, body string) bool {
			at, given, _ := strings.Cut(strings.TrimPrefix(h.Get("Stripe-Signature"), "t="), ",v1=")
			return recent(at) && given == hex.EncodeToString(sign([]byte(secret), at+"."+body))
		},
	},
	"GitHub": {
		func(h http.Header, body string) {
			h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sign([]byte(secret), body)))
		},
		func(h http.Header, body string) bool {
			return h.Get("X-Hub-Signature-256") == "sha256="+hex.EncodeToString(sign([]byte(secret), body))
		},
	},
	"RFC 9421": { // only the sender can sign, so the proxy can only alter signatures
		func(h http.Header, body string) {
			h.Set("Signature-Input", `sig=("content-digest");keyid="k"`)
			h.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sign(nil, body))+":")
			h.Set("Signature", "sig=:"+base64.StdEncoding.EncodeToString(sign([]byte("private"), h.Get("Content-Digest")))+":")
		},
		func(h http.Header, _ string) bool {
			return h.Get("Signature") == "sig=:"+base64.StdEncoding.EncodeToString(sign([]byte("private"), h.Get("Content-Digest")))+":"
		},
	},
}

func recent(unix string) bool {
	var at int64
	_, _ = fmt.Sscan(unix, &at)
	return time.Since(time.Unix(at, 0)).Abs() < 5*time.Minute
}

// With every scheme, a receiver that verifies signatures passes, and one that accepts everything fails.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	for name, way := range signing {
		for _, careful := range []bool{true, false} {
			t.Run(fmt.Sprint(name, careful), func(t *testing.T) {
				t.Parallel()
				receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if careful && !way.holds(r.Header, string(body)) {
						w.WriteHeader(http.StatusUnauthorized)
					}
				}))
				defer receiver.Close()
				v := deliver(t, receiver.URL+"/hook", way.sign)
				status := map[string]verdict.Status{}
				for _, r := range v.Results {
					status[r.Rule] = r.Status
				}
				require.Equal(t, map[bool]verdict.Status{true: verdict.OK, false: verdict.Fail}[careful], status["tampered-refused"])
				require.Equal(t, verdict.OK, status["deliveries-answered"])
				require.Equal(t, verdict.OK, status["repeated-delivery"])
			})
		}
	}
}

// deliver sends ten deliveries through a proxy with the profile for deliveries. It repeats each one until the answer is 2xx.
func deliver(t *testing.T, receiver string, sign func(http.Header, string)) verdict.Verdict {
	t.Helper()
	target, err := url.Parse("http://127.0.0.1:1")
	require.NoError(t, err)
	to, err := url.Parse(receiver)
	require.NoError(t, err)
	a, err := api.Parse(nil)
	require.NoError(t, err)
	p := proxy.New(target, a, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(p)
	defer server.Close()
	hook := httptest.NewServer(p.Hook(to, secret))
	defer hook.Close()
	b := &bench{t, server.URL, http.DefaultClient}
	id := b.session(`{"profile": "duplicate-deliveries"}`)
	for n := range 10 {
		body := fmt.Sprintf(`{"type": "thing.done", "n": %d}`, n)
		for ok := false; !ok; {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hook.URL+"/hook", bytes.NewReader([]byte(body)))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Webhook-Id", fmt.Sprint("m", n))
			sign(r.Header, body)
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				ok = res.StatusCode == http.StatusOK
				require.NoError(t, res.Body.Close())
			}
		}
	}
	v, _ := b.verdict(id)
	return v
}

// A rewritten delivery is signed like the original. If only the sender can sign, the delivery passes unchanged, and its fault does not
// count.
func TestDeliveriesOfALaterVersion(t *testing.T) {
	t.Parallel()
	for name, way := range signing {
		for _, known := range []string{secret, ""} {
			var got string
			holds := false
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got, holds = string(text), way.holds(r.Header, string(text))
			}))
			t.Cleanup(receiver.Close)
			p := proxy.New(must(url.Parse("http://127.0.0.1:1")), must(api.Parse(nil)), slog.New(slog.DiscardHandler))
			server, hook := httptest.NewServer(p), httptest.NewServer(p.Hook(must(url.Parse(receiver.URL+"/hook")), known))
			t.Cleanup(server.Close)
			t.Cleanup(hook.Close)
			b := &bench{t, server.URL, http.DefaultClient}
			id := b.session("")
			b.faults(nth(fault.Delivery, 1, fault.Effect{JobStatus: "PONDERING", Extensions: true}),
				nth(fault.Delivery, 2, fault.Effect{JobStatus: "PONDERING"}), nth(fault.Delivery, 3, fault.Effect{JobStatus: "PONDERING"}))
			send := func(body string) string {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, hook.URL+"/hook", strings.NewReader(body))
				require.NoError(t, err)
				r.Header.Set("Webhook-Id", "m"+sum(body))
				way.sign(r.Header, body)
				res, err := http.DefaultClient.Do(r)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.True(t, holds, name)
				return got
			}
			changed := known != "" && name != "RFC 9421"
			body := `{"type": "thing.done", "status": "running"}`
			for n, given := range []string{body, body + " ", `{"type": "thing.done"}`, body} {
				switch got := send(given); {
				case !changed || n > 1:
					require.Equal(t, given, got, name)
				case n == 0:
					require.Contains(t, got, `{"type":"thing.done","status":"PONDERING","xNumber":`)
				default:
					require.JSONEq(t, `{"type": "thing.done", "status": "PONDERING"}`, got)
				}
			}
			journal := string(b.own("GET", "sessions/"+id+"/journal", "", 200))
			require.Equal(t, map[bool]int{true: 2}[changed], strings.Count(journal, "document changed"), journal)
		}
	}
}

func sum(text string) string { return hex.EncodeToString(sign(nil, text))[:8] }
