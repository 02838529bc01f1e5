package client

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// String returns the id and the address of the webhook, without the secret.
func (w Webhook) String() string { return "webhook " + w.WebhookID + " to " + withoutUser(w.URL) }

// Format formats like String for every verb.
func (w Webhook) Format(f fmt.State, _ rune) { format(f, w) }

// LogValue returns String.
func (w Webhook) LogValue() slog.Value { return slog.StringValue(w.String()) }

// RedeliverSince asks the service to repeat the deliveries that failed since `from`. Start with cursor "". If the response has a
// NextCursor, call RedeliverSince again with it.
func (c *Client) RedeliverSince(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "redeliver", from, cursor, options)
}

// Replay is like RedeliverSince. It also sends events that match the webhook but were never sent to it.
func (c *Client) Replay(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "replay", from, cursor, options)
}

func (c *Client) replay(ctx context.Context, webhookID, what string, from time.Time, cursor string, options []Option) (*Replay, error) {
	return fetch[Replay](ctx, c, post(options, "webhooks", webhookID, what).with(SinceRequest{from.UTC(), cursor}))
}

// WebhookMessage is a delivery, in the binary or structured mode of CloudEvents. Verifier.Verify returns it. In binary mode, all fields
// except WebhookID, ContentType, Data and ReceivedAt come from ce- headers. Only a Verifier with Keys detects changed ce- headers.
type WebhookMessage struct {
	WebhookID   string // webhook-id of the delivery, the same on each try
	EventID     string // ce-id
	Name        string // ce-type, such as job.failed
	Source      string
	Subject     string
	Time        time.Time
	Sequence    int    // number of the event among the job's events, from 1; 0 for events without a job
	WorkKind    string // "" for events without a job
	ContentType string
	Data        json.RawMessage
	ReceivedAt  time.Time // when this program read the message
}

// ParseDelivery parses a delivery's CloudEvent in binary or structured mode, without verifying it. Use it only for messages that are
// already verified. To receive deliveries, use Verifier.Verify instead.
func ParseDelivery(header http.Header, body []byte) (*WebhookMessage, error) {
	m := &WebhookMessage{WebhookID: header.Get("Webhook-Id"), ContentType: header.Get("Content-Type"), Data: body, ReceivedAt: time.Now()}
	attribute := func(name string) string { return header.Get("Ce-" + name) }
	if mediaType(m.ContentType) == "application/cloudevents+json" {
		var event members
		if err := json.Unmarshal(body, &event); err != nil {
			return nil, fmt.Errorf("client: not a CloudEvent: %w", err)
		}
		attribute = func(name string) (value string) { event.take(name, &value); return value }
		m.ContentType, m.Data = attribute("datacontenttype"), event["data"]
	}
	m.EventID, m.Name, m.Source, m.Subject = attribute("id"), attribute("type"), attribute("source"), attribute("subject")
	m.WorkKind = attribute("workkind")
	if m.EventID == "" || m.Name == "" {
		return nil, errors.New("client: not a CloudEvent: it has no id or no type")
	}
	if !json.Valid(m.Data) {
		return nil, errors.New("client: the delivery's data is not JSON")
	}
	// If time or sequence is absent or malformed, the field stays zero.
	m.Time, _ = time.Parse(time.RFC3339Nano, strings.ToUpper(attribute("time")))
	if n, err := strconv.Atoi(attribute("sequence")); err == nil && n > 0 {
		m.Sequence = n
	}
	return m, nil
}

// JobID returns the id of the message's job, or "".
func (m *WebhookMessage) JobID() string {
	if id, ok := strings.CutPrefix(m.Subject, "jobs/"); ok {
		return id
	}
	return ""
}

// Outcome decodes the data as an outcome document. All messages about jobs and batches have one. Log the outcome's Warnings.
func (m *WebhookMessage) Outcome() (*Outcome, error) {
	return parseOutcome(m.ContentType, m.Data, m.ReceivedAt)
}

// SigningKeys returns the public keys that verify deliveries, by key id. A Verifier should use Directory, which reloads the keys.
func (c *Client) SigningKeys(ctx context.Context) (map[string]ed25519.PublicKey, error) {
	var directory KeyDirectory
	r := &request{method: http.MethodGet, path: "/.well-known/http-message-signatures-directory"}
	r.set("Accept", "application/http-message-signatures-directory+json, application/json")
	a, err := c.call(ctx, r, &directory)
	if err == nil && directory.Keys == nil {
		err = r.unexpected(a, "it has no keys")
	}
	if err != nil {
		return nil, err
	}
	keys := map[string]ed25519.PublicKey{}
	for _, key := range directory.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key.X)
		if key.Kty == "OKP" && key.Crv == "Ed25519" && err == nil && len(x) == ed25519.PublicKeySize {
			keys[key.Kid] = x // no other kind of key signs deliveries
		}
	}
	return keys, nil
}

// Times of Directory. docs/reference/webhooks.md recommends the first two.
const (
	keepKeys    = 5 * time.Minute
	askAgain    = time.Minute      // wait before another read for an unknown key
	afterError  = 5 * time.Second  // wait after a failed read
	useOldKeys  = time.Hour        // how long known keys are used while the keys cannot be read
	waitForKeys = 10 * time.Second // how long a verification waits for a read
)

// Directory caches the service's published keys for five minutes. If it does not know a key, it reads the keys again, at most once a
// minute. A Directory is safe for concurrent use. Set Verifier.Keys to the Key method of a Directory.
type Directory struct {
	c      *Client
	mu     sync.Mutex // not held during a request
	keys   map[string]ed25519.PublicKey
	read   time.Time
	next   time.Time
	err    error         // of the latest read
	asking chan struct{} // closed when the running request for the keys ends; nil if none runs
}

// Directory returns a directory of the service's keys. The keys are only as safe as the connection, so the client's URL should be https.
func (c *Client) Directory() *Directory { return &Directory{c: c} }

// Key returns a cached key. If the key is not cached, or the cache is five minutes old, Key reads the keys from the service. Concurrent
// calls share a request. While the service is unavailable, Key returns cached keys for up to an hour.
func (d *Directory) Key(keyID string) (ed25519.PublicKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.c.now()
	if key, known := d.keys[keyID]; known && now.Sub(d.read) < keepKeys {
		return key, nil
	}
	switch {
	case d.asking != nil:
		over := d.asking
		d.mu.Unlock()
		<-over
		d.mu.Lock()
	case !now.Before(d.next):
		d.ask(now)
	}
	if d.err != nil && now.Sub(d.read) >= useOldKeys {
		return nil, d.err
	}
	key, known := d.keys[keyID]
	switch {
	case !known && d.err != nil:
		return nil, errors.Join(d.err, errors.New("client: the signature's key is not among the known keys; it may be new"))
	case !known:
		return nil, refused("the signature's key is not published")
	}
	return key, nil
}

// ask reads the keys. The caller holds d.mu. ask unlocks d.mu during the request.
func (d *Directory) ask(now time.Time) {
	d.asking = make(chan struct{})
	d.mu.Unlock()
	var keys map[string]ed25519.PublicKey
	err := errors.New("client: the keys were not read")
	defer func() { // deferred to release waiters if the transport panics
		d.mu.Lock()
		close(d.asking)
		d.asking, d.err = nil, err
		if err != nil {
			d.next = now.Add(afterError)
			return
		}
		d.keys, d.read, d.next = keys, now, now.Add(askAgain)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), waitForKeys)
	defer cancel()
	keys, err = d.c.SigningKeys(ctx)
}
