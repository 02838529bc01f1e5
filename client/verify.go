package client

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// ErrSignature is returned for a message that is forged, changed or too old. Answer 401 to it. Other errors mean that Verify could not
// decide, for example because it could not read the keys. After such an error, answer 503, so that the service sends the message again.
var ErrSignature = errors.New("client: the message signature is invalid or too old")

// A Verifier checks webhook deliveries and callbacks as described in docs/reference/webhooks.md. Set Secret, Keys, or both. Verify checks
// the message with each of them that is set. A Verifier is safe for concurrent use.
type Verifier struct {
	// Secret is the secret of the webhook, such as whsec_... Callbacks have none. Do not store a Verifier in an unexported struct field,
	// because fmt would print the secret.
	Secret string
	// Keys returns the public key with this id. Use the method Key of Client.Directory().
	Keys func(keyID string) (ed25519.PublicKey, error)
	// URL is the registered URL of the webhook or callback, even if a proxy rewrites the URL of requests. URL is required if Keys is set.
	URL string
	Now func() time.Time // nil: time.Now
}

// String hides the secret.
func (v Verifier) String() string { return "verifier of deliveries" }

// Format formats like String for every verb.
func (v Verifier) Format(f fmt.State, _ rune) { format(f, v) }

// LogValue returns String.
func (v Verifier) LogValue() slog.Value { return slog.StringValue(v.String()) }

const (
	maxAge     = 5 * time.Minute // maximum age of a message, by its webhook-timestamp
	clockSkew  = time.Minute     // allowed difference of the clocks, for a signature's created and expires times
	maxEntries = 16              // maximum number of signatures to try
)

func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

// Verify checks a request and returns its message. If the check fails, the error is ErrSignature. Other errors mean that the check was
// impossible. Do not read r.Body before Verify, because Verify needs the original bytes.
//
// With Secret it checks the HMAC of Standard Webhooks. The message must be at most five minutes old. Only the service and the webhook's
// owner know the secret, so the message belongs to that webhook. The HMAC protects the body, webhook-id and webhook-timestamp, but no ce-
// header. In binary mode EventID, Name, Source, Subject, Time, Sequence, WorkKind and JobID come from ce- headers. A proxy can change
// these headers. Without Keys, trust only WebhookID and Data in binary mode.
//
// With Keys it checks a signature of RFC 9421. The signature must be valid now, and cover the method, URL, Content-Digest, Content-Type,
// webhook-id and every ce- header. It proves that the service sent the message to this URL. It does not prove that the message is about
// one of your jobs. Any client can use your URL as a callback and choose the data. For a webhook, set Secret, alone or with Keys. For a
// callback, set Keys. Before you act on a callback, check that you submitted the job with this JobID.
func (v *Verifier) Verify(r *http.Request) (*WebhookMessage, error) {
	switch {
	case v.Secret == "" && v.Keys == nil:
		return nil, errors.New("client: the Verifier has neither Secret nor Keys")
	case v.Keys != nil && v.URL == "":
		return nil, errors.New("client: a Verifier with Keys needs the URL that was registered")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponse+1))
	if err != nil {
		return nil, fmt.Errorf("client: the body of the delivery cannot be read: %w", err)
	}
	if len(body) > maxResponse {
		return nil, refused(fmt.Sprintf("it has more than %d bytes", maxResponse))
	}
	if v.Secret != "" {
		if err := v.verifySecret(r.Header, body); err != nil {
			return nil, err
		}
	}
	if v.Keys != nil {
		if err := v.verifyKey(r.Method, r.Header, body); err != nil {
			return nil, err
		}
	}
	message, err := ParseDelivery(r.Header, body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err) // the service sends only valid CloudEvents
	}
	return message, nil
}

func (v *Verifier) verifySecret(header http.Header, body []byte) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(v.Secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return errors.New("client: the secret must be whsec_ followed by base64")
	}
	id, timestamp := header.Values("Webhook-Id"), header.Values("Webhook-Timestamp")
	if len(id) != 1 || id[0] == "" || len(timestamp) != 1 {
		return refused("webhook-id or webhook-timestamp is missing or repeated")
	}
	if strings.Contains(id[0], ".") { // dots separate the signed parts, so an id with a dot would be ambiguous
		return refused("webhook-id has a dot")
	}
	seconds, err := strconv.ParseUint(timestamp[0], 10, 40)
	if err != nil {
		return refused("webhook-timestamp is not a number of seconds")
	}
	if age := v.now().Sub(time.Unix(int64(seconds), 0)); age > maxAge || age < -maxAge {
		return refused("its timestamp is too old or in the future")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id[0] + "." + timestamp[0] + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for i, entry := range strings.Fields(strings.Join(header.Values("Webhook-Signature"), " ")) {
		encoded, known := strings.CutPrefix(entry, "v1,")
		if !known || i >= maxEntries {
			continue // an unknown version, or too many signatures
		}
		given, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && hmac.Equal(given, want) {
			return nil
		}
	}
	return refused("no signature matches the secret")
}

func (v *Verifier) verifyKey(method string, header http.Header, body []byte) error {
	inputs, err := dictionary(header, "Signature-Input")
	if err != nil {
		return err
	}
	signatures, err := dictionary(header, "Signature")
	if err != nil {
		return err
	}
	if matches, _ := digestMatches(header, body, "Content-Digest"); !matches { // the signature covers the digest, not the body
		return refused("the body does not match Content-Digest")
	}
	m := message{method: method, target: signedURI(v.URL), header: header}
	err = refused("it has no signature")
	names := inputs.Names()
	for _, name := range names[:min(len(names), maxEntries)] {
		input, _ := inputs.Get(name)
		signature, _ := signatures.Get(name)
		if err = v.verifyInput(m, input, bytesOf(signature)); err == nil {
			return nil
		}
	}
	return err
}

// maxFields is the maximum length of a structured field, in bytes.
const maxFields = 16 << 10

// dictionary parses all lines of a field as a dictionary of structured fields (RFC 9651).
func dictionary(h http.Header, name string) (*httpsfv.Dictionary, error) {
	text := joined(h, name)
	if len(text) > maxFields {
		return nil, refused(name + " is too long")
	}
	all, err := httpsfv.UnmarshalDictionary([]string{text})
	if err != nil {
		return nil, refused(name + ": " + err.Error())
	}
	return all, nil
}

func bytesOf(member httpsfv.Member) []byte {
	item, _ := member.(httpsfv.Item)
	value, _ := item.Value.([]byte)
	return value
}

// joined returns all lines of a field as one (RFC 9110, section 5.3).
func joined(h http.Header, name string) string {
	var trimmed []string
	for _, value := range h.Values(name) {
		trimmed = append(trimmed, strings.Trim(value, " \t"))
	}
	return strings.Join(trimmed, ", ")
}

func parameter[T any](list httpsfv.InnerList, name string) (T, bool) {
	value, _ := list.Params.Get(name)
	typed, ok := value.(T)
	return typed, ok
}

func (v *Verifier) verifyInput(m message, member httpsfv.Member, signature []byte) error {
	input, ok := member.(httpsfv.InnerList)
	if !ok {
		return refused("Signature-Input has no list of components")
	}
	created, ok := parameter[int64](input, "created")
	expires, ok2 := parameter[int64](input, "expires")
	if !ok || !ok2 {
		return refused("the signature has no creation and expiry time")
	}
	now := v.now()
	if time.Unix(created, 0).After(now.Add(clockSkew)) || time.Unix(expires, 0).Before(now.Add(-clockSkew)) {
		return refused("the signature is expired or dated in the future")
	}
	if algorithm, _ := parameter[string](input, "alg"); algorithm != "ed25519" {
		return refused("the signature's algorithm is not ed25519")
	}
	base, err := m.signatureBase(input, mustCover)
	if err != nil {
		return err
	}
	if len(signature) != ed25519.SignatureSize {
		return refused("the Signature header has no valid signature for the entry in Signature-Input")
	}
	keyID, _ := parameter[string](input, "keyid")
	key, err := v.Keys(keyID)
	if err != nil {
		return err
	}
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, base, signature) {
		return refused("the signature does not match")
	}
	return nil
}

func refused(why string) error { return fmt.Errorf("%w: %s", ErrSignature, why) }

// A signature must cover these components and all ce- headers.
var mustCover = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}

type message struct {
	method, target string
	header         http.Header
}

// signatureBase returns the signed text (RFC 9421, section 2.5). It fails if the signature does not cover all of `must` and all ce-
// headers.
func (m message) signatureBase(input httpsfv.InnerList, must []string) ([]byte, error) {
	covered := map[string]bool{}
	var base strings.Builder
	for _, component := range input.Items {
		name, ok := component.Value.(string)
		if !ok || len(component.Params.Names()) > 0 || covered[name] {
			return nil, refused("the signature covers an unknown component")
		}
		value, err := m.component(name)
		if err != nil {
			return nil, err
		}
		covered[name] = true
		fmt.Fprintf(&base, "\"%s\": %s\n", name, value)
	}
	for _, name := range must {
		if !covered[name] {
			return nil, refused("the signature does not cover " + name)
		}
	}
	for name := range m.header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "ce-") && !covered[name] {
			return nil, refused("the signature does not cover " + line(name))
		}
	}
	params, err := httpsfv.Marshal(input)
	if err != nil {
		return nil, refused("Signature-Input: " + err.Error())
	}
	base.WriteString(`"@signature-params": ` + params)
	return []byte(base.String()), nil
}

func (m message) component(name string) (string, error) {
	switch {
	case name == "@method":
		return m.method, nil
	case name == "@target-uri":
		return m.target, nil
	case name == "@authority" || name == "@path":
		u, err := url.Parse(m.target)
		if err != nil {
			return "", fmt.Errorf("client: build the target URI: %w", err)
		}
		if name == "@path" {
			return u.EscapedPath(), nil
		}
		return strings.ToLower(u.Host), nil
	case strings.HasPrefix(name, "@") || name != strings.ToLower(name) || m.header.Values(name) == nil:
		return "", refused("there is no component " + line(name))
	}
	return joined(m.header, name), nil
}

// signedURI normalizes a URL as the service does before it signs. The scheme and host become lower case, and an empty path becomes /.
// The default port and the fragment are removed, and non-ASCII characters are escaped. An invalid URL is returned unchanged.
func signedURI(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return target
	}
	host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	var query strings.Builder
	for i := range len(u.RawQuery) {
		if b := u.RawQuery[i]; b < 0x80 {
			query.WriteByte(b)
		} else {
			fmt.Fprintf(&query, "%%%02X", b)
		}
	}
	u.RawQuery = query.String()
	return u.Scheme + "://" + host + u.RequestURI()
}
