package webhook

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// SendChanged is like Send, but a fault of the test bed changes the delivery. For example, the signature is wrong.
func (s *Sender) SendChanged(ctx context.Context, p job.ClaimedDelivery, e fault.Effect) job.Sent {
	return s.send(ctx, p, e)
}

// staleAge is the age of a stale signature. Receivers usually accept an age of a few minutes.
const staleAge = time.Hour

func (g signing) changed(e fault.Effect) (signing, error) {
	var err error
	switch e.Tamper {
	case fault.TamperTimestamp:
		g.at = g.at.Add(-staleAge)
	case fault.TamperTarget:
		other := *g.target
		other.Host, other.Path, other.RawPath = "other.example", "/hooks", ""
		g.target = &other
		g.secrets = otherSecrets(g.secrets)
	case fault.TamperKey:
		g.secrets = otherSecrets(g.secrets)
		g.key, err = unpublishedKey()
	}
	if e.RotatedSecret && len(g.secrets) > 0 {
		g.secrets = append(otherSecrets(g.secrets[:1]), g.secrets...)
	}
	return g, err
}

func otherSecrets(secrets []string) []string {
	others := make([]string, len(secrets))
	for i := range others {
		others[i] = secretText(randomSecret())
	}
	return others
}

func unpublishedKey() (k signingKey, err error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return k, err
	}
	k.private = private
	k.KID, err = thumbprint(public)
	return k, err
}

// Trailing spaces are allowed in JSON.
func pad(body []byte, n int) []byte {
	if n == 0 {
		return body
	}
	return append(bytes.Clone(body), bytes.Repeat([]byte(" "), n)...)
}

// tamper changes a request after it was signed.
func tamper(r *http.Request, body []byte, t fault.Tamper) {
	switch t {
	case fault.TamperBody:
		altered := pad(body, 1)
		r.ContentLength, r.Body = int64(len(altered)), io.NopCloser(bytes.NewReader(altered))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(altered)), nil }
	case fault.TamperSignature:
		for _, name := range []string{"Signature", "Webhook-Signature"} {
			if value := r.Header.Get(name); value != "" {
				r.Header.Set(name, otherSignatures(value))
			}
		}
	}
}

func otherSignatures(value string) string {
	const label = 10 // index of a character inside the signature, after a prefix such as "v1," or "sig1=:"
	parts := strings.Split(value, " ")
	for i, part := range parts {
		if len(part) > label {
			other := "A"
			if part[label] == 'A' {
				other = "B"
			}
			parts[i] = part[:label] + other + part[label+1:]
		}
	}
	return strings.Join(parts, " ")
}
