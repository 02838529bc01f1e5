package proxy_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func sign(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = io.WriteString(m, text)
	return m.Sum(nil)
}

// signing has the signing schemes of common APIs. `sign` sets the sender's headers. `verify` checks the headers like a receiver.
var signing = map[string]struct {
	sign   func(h http.Header, body, secret string, at time.Time)
	verify func(h http.Header, body string) bool
}{
	"Standard Webhooks": {
		func(h http.Header, body, secret string, at time.Time) {
			h.Set("Webhook-Timestamp", fmt.Sprint(at.Unix()))
			h.Set("Webhook-Signature", standardSignature(h, body, secret))
		},
		func(h http.Header, body string) bool {
			return recent(h.Get("Webhook-Timestamp")) &&
				strings.Contains(" "+h.Get("Webhook-Signature")+" ", " "+standardSignature(h, body, secret)+" ")
		},
	},
	"Stripe": {
		func(h http.Header, body, secret string, at time.Time) {
			h.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at.Unix(), sign([]byte(secret), fmt.Sprintf("%d.%s", at.Unix(), body))))
		},
		func(h http.Header, body string) bool {
			at, given, _ := strings.Cut(strings.TrimPrefix(h.Get("Stripe-Signature"), "t="), ",v1=")
			return recent(at) && given == hex.EncodeToString(sign([]byte(secret), at+"."+body))
		},
	},
	"GitHub": {
		func(h http.Header, body, secret string, _ time.Time) {
			h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sign([]byte(secret), body)))
		},
		func(h http.Header, body string) bool {
			return h.Get("X-Hub-Signature-256") == "sha256="+hex.EncodeToString(sign([]byte(secret), body))
		},
	},
	"RFC 9421": { // only the sender can sign, so the proxy can only alter signatures
		func(h http.Header, body, _ string, _ time.Time) {
			h.Set("Signature-Input", `sig=("content-digest");keyid="k"`)
			h.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sign(nil, body))+":")
			h.Set("Signature", "sig=:"+base64.StdEncoding.EncodeToString(sign([]byte("private"), h.Get("Content-Digest")))+":")
		},
		func(h http.Header, _ string) bool {
			return h.Get("Signature") == "sig=:"+base64.StdEncoding.EncodeToString(sign([]byte("private"), h.Get("Content-Digest")))+":"
		},
	},
}

func standardSignature(h http.Header, body, secret string) string {
	key := must(base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")))
	return "v1," + base64.StdEncoding.EncodeToString(sign(key, h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."+body))
}

func recent(unix string) bool {
	var at int64
	_, _ = fmt.Sscan(unix, &at)
	return time.Since(time.Unix(at, 0)).Abs() < 5*time.Minute
}

func hooked(t *testing.T, secret string, receiver http.HandlerFunc) (b *bench, send func(h http.Header, body string) response) {
	t.Helper()
	p := newProxy(t, "http://127.0.0.1:1", "")
	hook := &bench{t, serverOf(t, p.Hook(must(url.Parse(serverOf(t, receiver)+"/hook")), secret)), plain(t)}
	return benchAt(t, listen(t, p)), func(h http.Header, body string) response {
		var headers []string
		for name := range h {
			headers = append(headers, name, h.Get(name))
		}
		return hook.do("POST", "/hook", body, headers...)
	}
}

// With every scheme, a receiver that verifies signatures passes, and a receiver that accepts everything fails.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	for name, scheme := range signing {
		for _, careful := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", careful: ", careful), func(t *testing.T) {
				t.Parallel()
				b, send := hooked(t, secret, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if careful && !scheme.verify(r.Header, string(body)) {
						w.WriteHeader(http.StatusUnauthorized)
					}
				})
				id := b.session(`{"profile": "duplicate-deliveries"}`)
				for n := range 10 {
					body := fmt.Sprintf(`{"type": "thing.done", "n": %d}`, n)
					for ok := false; !ok; {
						h := http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {fmt.Sprint("m", n)}}
						scheme.sign(h, body, secret, time.Now())
						a := send(h, body)
						ok = a.err == nil && a.StatusCode == http.StatusOK
					}
				}
				_, rules := b.verdict(id)
				require.Equal(t, map[bool]verdict.Status{true: verdict.OK, false: verdict.Fail}[careful], rules["tampered-refused"].Status)
				require.Equal(t, verdict.OK, rules["deliveries-answered"].Status)
				require.Equal(t, verdict.OK, rules["repeated-delivery"].Status)
			})
		}
	}
}

// A rewritten delivery is signed like the original. If only the sender can sign, the delivery passes unchanged, and no fault is
// recorded.
func TestRewrittenDeliveries(t *testing.T) {
	t.Parallel()
	for name, scheme := range signing {
		for _, known := range []string{secret, ""} {
			got, holds := "", false
			b, send := hooked(t, known, func(_ http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				got, holds = string(text), scheme.verify(r.Header, string(text))
			})
			id := b.session("")
			b.faults(nth(fault.Delivery, 1, fault.Effect{JobStatus: "PONDERING", Extensions: true}),
				nth(fault.Delivery, 2, fault.Effect{JobStatus: "PONDERING"}), nth(fault.Delivery, 3, fault.Effect{JobStatus: "PONDERING"}))
			changed := known != "" && name != "RFC 9421"
			body := `{"type": "thing.done", "status": "running"}`
			for n, given := range []string{body, body + " ", `{"type": "thing.done"}`, body} {
				h := http.Header{"Webhook-Id": {fmt.Sprint("m", n)}}
				scheme.sign(h, given, secret, time.Now())
				require.NoError(t, send(h, given).err)
				require.True(t, holds, name)
				switch {
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
