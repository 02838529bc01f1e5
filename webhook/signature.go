package webhook

import (
	"crypto/ed25519"
	"crypto/sha256"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const signatureLabel = "sig1"

const signatureLife = 5 * time.Minute

// coveredFields are the headers that every signature covers. In binary mode, a signature also covers the ce-* headers.
var coveredFields = []string{"content-type", "content-digest", "webhook-id"}

type signing struct {
	at      time.Time
	target  *url.URL
	key     signingKey
	secrets []string
}

func (g signing) sign(r *http.Request, m message) error {
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(g.at.Unix(), 10))
	if len(g.secrets) > 0 {
		signature, err := standardSignature(g.secrets, r.Header.Get("Webhook-Id"), m.body, g.at)
		if err != nil {
			return err
		}
		r.Header.Set("Webhook-Signature", signature)
	}
	return g.signMessage(r, m.attributes)
}

// signMessage adds an HTTP message signature (RFC 9421) to the headers.
func (g signing) signMessage(r *http.Request, attributes []field) error {
	components := []field{
		{"@method", r.Method},
		{"@target-uri", targetURI(g.target)},
	}
	for _, name := range coveredFields {
		components = append(components, field{name, r.Header.Get(name)})
	}
	params := httpsfv.NewParams()
	params.Add("created", g.at.Unix())
	params.Add("expires", g.at.Add(signatureLife).Unix())
	params.Add("keyid", g.key.KID)
	params.Add("alg", "ed25519")
	input, signature, err := sign(signatureLabel, append(components, attributes...), params, g.key.private)
	if err != nil {
		return err
	}
	r.Header.Set("Signature-Input", input)
	r.Header.Set("Signature", signature)
	return nil
}

// targetURI returns the value of @target-uri (RFC 9421, section 2.2.2).
func targetURI(u *url.URL) string { return u.Scheme + "://" + u.Host + u.RequestURI() }

// sign signs the components in their order, and returns Signature-Input and Signature (RFC 9421, sections 2.5 and 3.1).
func sign(label string, components []field, params *httpsfv.Params, key ed25519.PrivateKey) (input, signature string, err error) {
	covered := httpsfv.InnerList{Params: params}
	var base strings.Builder
	for _, c := range components {
		covered.Items = append(covered.Items, httpsfv.NewItem(c.name))
		base.WriteString(`"` + c.name + `": ` + c.value + "\n") // names contain no quotes
	}
	list, err := httpsfv.Marshal(covered)
	if err != nil {
		return "", "", err
	}
	base.WriteString(`"@signature-params": ` + list)

	if input, err = member(label, covered); err != nil {
		return "", "", err
	}
	signature, err = member(label, httpsfv.NewItem(ed25519.Sign(key, []byte(base.String()))))
	return input, signature, err
}

// contentDigest returns the Content-Digest header (RFC 9530).
func contentDigest(body []byte) (string, error) {
	sum := sha256.Sum256(body)
	return member("sha-256", httpsfv.NewItem(sum[:]))
}

func member(name string, value httpsfv.Member) (string, error) {
	d := httpsfv.NewDictionary()
	d.Add(name, value)
	return httpsfv.Marshal(d)
}

// standardSignature returns the webhook-signature header (Standard Webhooks), with a signature for each secret.
func standardSignature(secrets []string, id string, body []byte, now time.Time) (string, error) {
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			return "", err
		}
		if signatures[i], err = signer.Sign(id, now, body); err != nil {
			return "", err
		}
	}
	return strings.Join(signatures, " "), nil
}
