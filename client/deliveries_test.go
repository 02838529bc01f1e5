package client_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// delivery is a request that a receiver got.
type delivery struct {
	method, url string
	header      http.Header
	body        []byte
}

// captured are deliveries of a real service, by the names of their events.
type captured struct {
	keys             map[string]ed25519.PublicKey
	secrets          map[string]string // of the webhook that got the event
	deliveries       map[string]delivery
	directoryAnswers reply
}

func capture(t *testing.T) captured {
	t.Helper()
	text := must(os.ReadFile("testdata/deliveries.json"))(t)
	var file struct {
		Secret           string          `json:"secret"`
		StructuredSecret string          `json:"structured_secret"`
		Directory        json.RawMessage `json:"directory"`
		Deliveries       map[string]struct {
			Method, URL string
			Headers     map[string]string
			Body        []byte `json:"body_base64"`
		} `json:"deliveries"`
	}
	require.NoError(t, json.Unmarshal(text, &file))
	c := captured{secrets: map[string]string{}, deliveries: map[string]delivery{}}
	c.directoryAnswers = reply{status: 200, kind: "application/http-message-signatures-directory+json", body: string(file.Directory)}
	c.keys = must(serve(t, c.directoryAnswers).c.SigningKeys(t.Context()))(t)
	require.Len(t, c.keys, 1)
	for name, d := range file.Deliveries {
		header := http.Header{}
		for n, value := range d.Headers {
			header.Set(n, value)
		}
		c.deliveries[name] = delivery{d.Method, d.URL, header, d.Body}
		c.secrets[name] = file.Secret
		if header.Get("Ce-Id") == "" {
			c.secrets[name] = file.StructuredSecret
		}
	}
	require.Len(t, c.deliveries, 4)
	return c
}

// request is the delivery as a receiver's handler gets it.
func (d delivery) request() *http.Request {
	return &http.Request{Method: d.method, Header: d.header, Body: io.NopCloser(bytes.NewReader(d.body))}
}

// keysOf gives the keys as a directory does.
func keysOf(keys map[string]ed25519.PublicKey) func(string) (ed25519.PublicKey, error) {
	return func(id string) (ed25519.PublicKey, error) {
		if key, known := keys[id]; known {
			return key, nil
		}
		return nil, fmt.Errorf("%w: its key is not published", client.ErrSignature)
	}
}

func signedAt(t *testing.T, d delivery) time.Time {
	t.Helper()
	var seconds int64
	require.NoError(t, second(fmt.Sscan(d.header.Get("Webhook-Timestamp"), &seconds)))
	return time.Unix(seconds, 0)
}

func (d delivery) changed(change func(d *delivery)) delivery {
	d.header = d.header.Clone()
	d.body = bytes.Clone(d.body)
	change(&d)
	return d
}
