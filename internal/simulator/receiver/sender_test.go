package receiver_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// The signing code below follows the webhook documentation and shares no code with the service.
const (
	keyID      = "key-1"
	secretText = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
)

var privateKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

type delivery struct {
	url, signedURL string // signedURL: the URL to sign; "": url
	id             string
	event          string
	subject, jobID string
	correlation    string
	body           []byte // nil: the default body
	secret         string
	key            ed25519.PrivateKey
	at             time.Time
}

func of(url, id, jobID string) delivery {
	return delivery{url: url, id: id, event: "job.succeeded", subject: "jobs/" + jobID, jobID: jobID, secret: secretText, key: privateKey,
		at: time.Now()}
}

func (d delivery) request(ctx context.Context, t testing.TB) *http.Request {
	body := d.body
	if body == nil {
		body = fmt.Appendf(nil, `{"jobId":%q,"jobStatus":"COMPLETED","correlationId":%q}`, d.jobID, d.correlation)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	require.NoError(t, err)
	digest := sha256.Sum256(body)
	fields := [][2]string{
		{"content-type", "application/json"}, {"content-digest", "sha-256=:" + base64.StdEncoding.EncodeToString(digest[:]) + ":"},
		{"webhook-id", d.id}, {"ce-specversion", "1.0"}, {"ce-id", "event-of-" + d.id}, {"ce-type", d.event},
		{"ce-source", "https://forgerun.test/v1"}, {"ce-subject", d.subject}, {"ce-sequence", "5"},
	}
	target := cmp.Or(d.signedURL, d.url)
	names, base := `"@method" "@target-uri"`, "\"@method\": POST\n\"@target-uri\": "+target+"\n"
	for _, f := range fields {
		r.Header.Set(f[0], f[1])
		names += " " + strconv.Quote(f[0])
		base += fmt.Sprintf("%q: %s\n", f[0], f[1])
	}
	if d.key != nil {
		params := fmt.Sprintf(`(%s);created=%d;expires=%d;keyid=%q;alg="ed25519"`, names, d.at.Unix(), d.at.Unix()+300, keyID)
		signature := ed25519.Sign(d.key, []byte(base+`"@signature-params": `+params))
		r.Header.Set("Signature-Input", "sig1="+params)
		r.Header.Set("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(signature)+":")
	}
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(d.at.Unix(), 10))
	if d.secret != "" {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(d.secret, "whsec_"))
		require.NoError(t, err)
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.%s", d.id, d.at.Unix(), body)
		r.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return r
}

func (d delivery) send(ctx context.Context, t testing.TB) (int, error) {
	response, err := transport.RoundTrip(d.request(ctx, t))
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// transport never retries a request.
var transport = &http.Transport{DisableKeepAlives: true}

func publishedKeys(id string) (ed25519.PublicKey, error) {
	if id != keyID {
		return nil, fmt.Errorf("%w: its key is not published", client.ErrSignature)
	}
	return privateKey.Public().(ed25519.PublicKey), nil
}
