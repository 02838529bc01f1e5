package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

type scheme struct {
	header string
	dated  bool // whether the signature covers a time
	secret func(text []byte) []byte
	sign   func(h http.Header, body []byte, at time.Time, secret []byte) // nil if signing needs the sender's private key
	// signed returns the signatures of a delivery, in the form that `sign` writes. `at` is the time that the signatures cover; zero if they
	// cover no time.
	signed func(h http.Header) (at time.Time, signatures []string)
}

// maxAge is how far the time of a valid signature may be from now. Standard Webhooks and Stripe recommend this value.
const maxAge = 5 * time.Minute

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
		signed: func(h http.Header) (time.Time, []string) {
			return unix(h.Get("Webhook-Timestamp")), strings.Fields(strings.Join(h.Values("Webhook-Signature"), " "))
		},
	},
	{ // https://docs.stripe.com/webhooks#verify-manually
		header: "Stripe-Signature", dated: true,
		sign: func(h http.Header, body []byte, at time.Time, secret []byte) {
			h.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac(secret, fmt.Sprintf("%d.", at.Unix()), body)))
		},
		signed: func(h http.Header) (at time.Time, signatures []string) {
			text := ""
			var given []string
			for part := range strings.SplitSeq(strings.Join(h.Values("Stripe-Signature"), ","), ",") {
				if name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name == "t" {
					text = value
				} else if name == "v1" {
					given = append(given, value)
				}
			}
			for _, value := range given {
				signatures = append(signatures, "t="+text+",v1="+value)
			}
			return unix(text), signatures
		},
	},
	{ // https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
		header: "X-Hub-Signature-256",
		sign: func(h http.Header, body []byte, _ time.Time, secret []byte) {
			h.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac(secret, "", body)))
		},
		signed: func(h http.Header) (time.Time, []string) { return time.Time{}, h.Values("X-Hub-Signature-256") },
	},
	{header: "Signature"}, // RFC 9421
}

func mac(secret []byte, prefix string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(prefix))
	m.Write(body)
	return m.Sum(nil)
}

func unix(text string) time.Time {
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(at, 0)
}

func schemesOf(h http.Header) (all []*scheme) {
	for i := range schemes {
		if h.Get(schemes[i].header) != "" {
			all = append(all, &schemes[i])
		}
	}
	return all
}

// signedAt returns the time of the signatures of scheme s. `holds` is true if a signature is valid and its time, if any, is within
// maxAge of the delivery.
func (h *Hook) signedAt(s *scheme, d *delivery) (at time.Time, holds bool) {
	at, signatures := s.signed(d.header)
	if s.dated && d.At.Sub(at).Abs() > maxAge {
		return at, false
	}
	right := d.header.Clone()
	s.sign(right, d.body, at, h.key(s))
	return at, slices.ContainsFunc(signatures, func(signature string) bool {
		return hmac.Equal([]byte(signature), []byte(right.Get(s.header)))
	})
}

// validlySigned reports whether the signatures of a delivery are valid. Without a secret it returns true. With a secret, it returns false
// for a delivery without a signature. Schemes with private keys are not checked.
func (h *Hook) validlySigned(d *delivery) bool {
	if len(h.secret) == 0 {
		return true
	}
	all := schemesOf(d.header)
	for _, s := range all {
		if s.sign == nil {
			continue
		}
		if _, ok := h.signedAt(s, d); !ok {
			return false
		}
	}
	return len(all) > 0
}

// key returns the signing key of the scheme, or nil if the hook has no secret.
func (h *Hook) key(s *scheme) []byte {
	if len(h.secret) == 0 || s.secret == nil {
		return h.secret
	}
	return s.secret(h.secret)
}

// forged returns a forged copy of a delivery, which a receiver must refuse. It returns false if no such copy is possible, for example
// because the delivery has no signature.
func (h *Hook) forged(d *delivery, kind fault.Tamper) (*delivery, bool) {
	all := schemesOf(d.header)
	if kind == "" || len(all) == 0 || d.Unsigned {
		return nil, false
	}
	s := all[0]
	f := &delivery{method: d.method, url: d.url, header: d.header.Clone(), body: bytes.Clone(d.body)}
	known := h.key(s)
	switch {
	case kind == fault.TamperBody && f.header.Get("Content-Digest") == "":
		f.body = append(f.body, ' ')
	case kind == fault.TamperTimestamp && s.dated && len(known) > 0 && s.sign != nil:
		s.sign(f.header, f.body, d.At.Add(-time.Hour), known)
	case kind == fault.TamperTimestamp:
		return nil, false // requires the secret
	case (kind == fault.TamperKey || kind == fault.TamperTarget) && s.sign != nil:
		s.sign(f.header, f.body, d.At, []byte(rand.Text()))
	default:
		f.header.Set(s.header, altered(f.header.Get(s.header)))
	}
	for _, other := range all[1:] { // the signatures of all other schemes must be invalid too
		f.header.Set(other.header, altered(f.header.Get(other.header)))
	}
	return f, true
}

// signature matches the signature in a header: at least 40 characters of hex or base64.
var signature = regexp.MustCompile(`[0-9A-Za-z+/_-]{40,}`)

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

// applyEffect changes a delivery but keeps it valid. A delivery with an invalid signature does not change, because a new signature would
// make it valid. The document of a signed delivery changes only if the hook can sign the delivery again. `seen` has the members of the
// effect that changed the document.
func (h *Hook) applyEffect(d *delivery, e *fault.Effect) (seen *fault.Effect) {
	seen = &fault.Effect{}
	if d.Unsigned {
		return seen
	}
	if e.ContentType != "" {
		d.header.Set("Content-Type", e.ContentType)
	}
	if e.Rewrites() {
		as := &fault.Effect{Extensions: e.Extensions, JobStatus: e.JobStatus}
		shape := h.proxy.sessions.shape(d.in)
		body := shape.Rewrite(as, d.body)
		if !bytes.Equal(body, shape.Rewrite(&fault.Effect{}, d.body)) && h.replaceBody(d, body) {
			seen = as
		}
	}
	if e.Padding > 0 {
		h.replaceBody(d, append(bytes.Clone(d.body), bytes.Repeat([]byte(" "), e.Padding)...))
	}
	if e.RotatedSecret && d.header.Get("Webhook-Signature") != "" {
		other := mac([]byte(rand.Text()), "", d.body)
		d.header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(other)+" "+d.header.Get("Webhook-Signature"))
	}
	return seen
}

// replaceBody replaces the body of a delivery and signs the delivery again. If it cannot sign the delivery, it changes nothing and
// returns false.
func (h *Hook) replaceBody(d *delivery, body []byte) bool {
	all := schemesOf(d.header)
	unknown := len(all) > 0 && len(h.secret) == 0 || d.header.Get("Content-Digest") != "" ||
		slices.ContainsFunc(all, func(s *scheme) bool { return s.sign == nil })
	if unknown {
		return false
	}
	for _, s := range all {
		at, _ := h.signedAt(s, d) // keep the signed time
		s.sign(d.header, body, at, h.key(s))
	}
	d.body = body
	return true
}
