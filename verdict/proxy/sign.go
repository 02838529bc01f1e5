package proxy

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// scheme is a way to sign deliveries.
type scheme struct {
	header string // that has the signature
	dated  bool   // the time is signed, too
	secret func(text []byte) []byte
	sign   func(h http.Header, body []byte, at time.Time, secret []byte) // nil: only with the sender's private key
}

// schemes are those that are known, by their header.
var schemes = []scheme{
	{ // https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
		header: "Webhook-Signature", dated: true,
		secret: func(text []byte) []byte {
			if raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(text), "whsec_")); err == nil {
				return raw
			}
			return text
		},
		sign: func(h http.Header, body []byte, at time.Time, secret []byte) {
			h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
			signed := mac(secret, h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+".", body)
			h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(signed))
		},
	},
	{ // https://docs.stripe.com/webhooks#verify-manually
		header: "Stripe-Signature", dated: true,
		sign: func(h http.Header, body []byte, at time.Time, secret []byte) {
			h.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac(secret, fmt.Sprintf("%d.", at.Unix()), body)))
		},
	},
	{ // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
		header: "X-Hub-Signature-256",
		sign: func(h http.Header, body []byte, _ time.Time, secret []byte) {
			h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac(secret, "", body)))
		},
	},
	{header: "Signature"}, // RFC 9421
}

func mac(secret []byte, prefix string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(prefix))
	m.Write(body)
	return m.Sum(nil)
}

// schemeOf is the one by which a delivery is signed; nil if it is not.
func schemeOf(h http.Header) *scheme {
	for i := range schemes {
		if h.Get(schemes[i].header) != "" {
			return &schemes[i]
		}
	}
	return nil
}

// key is the secret as the scheme uses it; nil if it is not known.
func (h *Hook) key(s *scheme) []byte {
	if len(h.secret) == 0 || s.secret == nil {
		return h.secret
	}
	return s.secret(h.secret)
}

// forged gives a request that a receiver must refuse; false if it cannot be made: of a delivery without a signature all are as good.
func (h *Hook) forged(d *delivery, kind fault.Tamper) (*delivery, bool) {
	s := schemeOf(d.header)
	if kind == "" || s == nil {
		return nil, false
	}
	f := &delivery{method: d.method, url: d.url, header: d.header.Clone(), body: bytes.Clone(d.body)}
	known := h.key(s)
	switch {
	case kind == fault.TamperBody && f.header.Get("Content-Digest") == "":
		f.body = append(f.body, ' ')
	case kind == fault.TamperTimestamp && s.dated && len(known) > 0 && s.sign != nil:
		s.sign(f.header, f.body, d.At.Add(-time.Hour), known)
	case kind == fault.TamperTimestamp:
		return nil, false // not without the secret
	case (kind == fault.TamperKey || kind == fault.TamperTarget) && s.sign != nil:
		s.sign(f.header, f.body, d.At, []byte(rand.Text()))
	default:
		f.header.Set(s.header, altered(f.header.Get(s.header)))
	}
	return f, true
}

// signature is the part of a header that is one: of at least 40 characters of hex or base64.
var signature = regexp.MustCompile(`[0-9A-Za-z+/_-]{40,}`)

// altered gives a header in which each signature is another one of the same form.
func altered(header string) string {
	return signature.ReplaceAllStringFunc(header, func(text string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case r >= '0' && r <= '9':
				return '0' + (r-'0'+1)%10
			case r >= 'a' && r <= 'f':
				return 'a' + (r-'a'+1)%6
			}
			return r
		}, text)
	})
}

// dress changes a delivery without making it wrong: its media type, its size, and a signature of an unknown secret besides.
func (h *Hook) dress(d *delivery, e *fault.Effect) {
	d.header.Set("Content-Type", cmp.Or(e.ContentType, d.header.Get("Content-Type")))
	s := schemeOf(d.header)
	if s == nil || s.sign == nil {
		return
	}
	if known := h.key(s); e.Padding > 0 && len(known) > 0 {
		d.body = append(d.body, bytes.Repeat([]byte(" "), e.Padding)...)
		s.sign(d.header, d.body, time.Now(), known)
	}
	if e.RotatedSecret && s.header == "Webhook-Signature" {
		d.header.Set(s.header, "v1,"+base64.StdEncoding.EncodeToString(mac([]byte(rand.Text()), "", d.body))+" "+d.header.Get(s.header))
	}
}
