// Command verify checks whether ForgeRun sent a captured webhook delivery. It
// reads {method, url, headers, body_base64} from standard input. Set
// WEBHOOK_SECRET to the webhook's secret, or DIRECTORY to a file with the
// published keys, or set both. The command prints "ok", or prints the reason
// and exits with 1.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// delivery is a received request. URL is the registered URL. A proxy may have
// rewritten the request's URL.
type delivery struct {
	Method, URL string
	Header      http.Header
	Body        []byte // the original bytes
}

// verifySecret checks the HMAC with the webhook's secret. It refuses messages
// that are older than five minutes.
func verifySecret(d delivery, secret string) error {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return webhook.Verify(d.Body, d.Header)
}

// mustCover lists the components that a signature must cover, in addition to all
// ce- headers.
var mustCover = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}

const skew = time.Minute // allowed difference between the clocks

// verifyKey checks the RFC 9421 signature with the server's published keys.
func verifyKey(d delivery, keys map[string]ed25519.PublicKey, now time.Time) error {
	inputs, err := httpsfv.UnmarshalDictionary(d.Header.Values("Signature-Input"))
	if err != nil {
		return fmt.Errorf("Signature-Input: %w", err)
	}
	member, _ := inputs.Get("sig1")
	input, ok := member.(httpsfv.InnerList)
	if !ok {
		return errors.New("Signature-Input has no sig1")
	}
	created, _ := param[int64](input, "created")
	expires, _ := param[int64](input, "expires")
	if time.Unix(created, 0).After(now.Add(skew)) || time.Unix(expires, 0).Before(now.Add(-skew)) {
		return errors.New("the signature is expired or dated in the future")
	}
	alg, _ := param[string](input, "alg")
	keyID, _ := param[string](input, "keyid")
	key := keys[keyID]
	if alg != "ed25519" || key == nil {
		return fmt.Errorf("no %s key %q in the directory", alg, keyID)
	}
	base, err := signatureBase(d, input)
	if err != nil {
		return err
	}
	signatures, err := httpsfv.UnmarshalDictionary(d.Header.Values("Signature"))
	if err != nil {
		return fmt.Errorf("Signature: %w", err)
	}
	signature, ok := bytesOf(signatures, "sig1")
	if !ok || !ed25519.Verify(key, base, signature) {
		return errors.New("the signature does not match")
	}
	return verifyDigest(d)
}

// verifyDigest checks the body against the signed Content-Digest (RFC 9530).
func verifyDigest(d delivery) error {
	digests, err := httpsfv.UnmarshalDictionary(d.Header.Values("Content-Digest"))
	if err != nil {
		return fmt.Errorf("Content-Digest: %w", err)
	}
	digest, ok := bytesOf(digests, "sha-256")
	if sum := sha256.Sum256(d.Body); !ok || !bytes.Equal(digest, sum[:]) {
		return errors.New("the body does not match Content-Digest")
	}
	return nil
}

// signatureBase returns the signed text (RFC 9421, section 2.5).
func signatureBase(d delivery, input httpsfv.InnerList) ([]byte, error) {
	var base strings.Builder
	var covered []string
	for _, item := range input.Items {
		name, _ := item.Value.(string)
		var value string
		switch {
		case len(item.Params.Names()) > 0:
			return nil, fmt.Errorf("component %q has parameters", name)
		case name == "@method":
			value = d.Method
		case name == "@target-uri":
			value = d.URL
		case strings.HasPrefix(name, "@") || d.Header.Values(name) == nil:
			return nil, fmt.Errorf("there is no component %q", name)
		default:
			value = strings.Join(d.Header.Values(name), ", ")
		}
		covered = append(covered, name)
		fmt.Fprintf(&base, "%q: %s\n", name, value)
	}
	required := slices.Clone(mustCover)
	for name := range d.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "ce-") {
			required = append(required, lower)
		}
	}
	for _, name := range required {
		if !slices.Contains(covered, name) {
			return nil, fmt.Errorf("the signature does not cover %s", name)
		}
	}
	params, err := httpsfv.Marshal(httpsfv.List{input})
	fmt.Fprintf(&base, `"@signature-params": %s`, params)
	return []byte(base.String()), err
}

func param[T any](input httpsfv.InnerList, name string) (value T, ok bool) {
	p, _ := input.Params.Get(name)
	value, ok = p.(T)
	return value, ok
}

func bytesOf(d *httpsfv.Dictionary, name string) ([]byte, bool) {
	member, _ := d.Get(name)
	item, _ := member.(httpsfv.Item)
	b, ok := item.Value.([]byte)
	return b, ok
}

func readKeys(directory []byte) (map[string]ed25519.PublicKey, error) {
	var jwks struct {
		Keys []struct{ Kty, Crv, Kid, X string }
	}
	if err := json.Unmarshal(directory, &jwks); err != nil {
		return nil, err
	}
	keys := map[string]ed25519.PublicKey{}
	for _, k := range jwks.Keys {
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err == nil && k.Kty == "OKP" && k.Crv == "Ed25519" && len(x) == ed25519.PublicKeySize {
			keys[k.Kid] = x
		}
	}
	return keys, nil
}

func main() {
	if err := run(os.Getenv("WEBHOOK_SECRET"), os.Getenv("DIRECTORY")); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func run(secret, directoryFile string) error {
	var captured struct {
		Method  string            `json:"method"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers"`
		Body    []byte            `json:"body_base64"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&captured); err != nil {
		return err
	}
	d := delivery{Method: captured.Method, URL: captured.URL, Header: http.Header{}, Body: captured.Body}
	for name, value := range captured.Headers {
		d.Header.Set(name, value)
	}
	if secret == "" && directoryFile == "" {
		return errors.New("set WEBHOOK_SECRET, DIRECTORY or both")
	}
	if secret != "" {
		if err := verifySecret(d, secret); err != nil {
			return err
		}
	}
	if directoryFile == "" {
		return nil
	}
	directory, err := os.ReadFile(directoryFile)
	if err != nil {
		return err
	}
	keys, err := readKeys(directory)
	if err != nil {
		return err
	}
	return verifyKey(d, keys, time.Now())
}
