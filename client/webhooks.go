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

// String names the webhook and its address.
func (w Webhook) String() string { return "webhook " + w.WebhookID + " to " + withoutUser(w.URL) }

// Format writes String for every verb.
func (w Webhook) Format(f fmt.State, _ rune) { format(f, w) }

// LogValue is String.
func (w Webhook) LogValue() slog.Value { return slog.StringValue(w.String()) }

// RedeliverSince sends again the deliveries that failed since then. While the answer has a NextCursor there are more: call it again with
// that cursor; "" begins.
func (c *Client) RedeliverSince(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "redeliver", from, cursor, options)
}

// Replay does what RedeliverSince does, and sends the events since then that the webhook asks for now and never got.
func (c *Client) Replay(ctx context.Context, webhookID string, from time.Time, cursor string, options ...Option) (*Replay, error) {
	return c.replay(ctx, webhookID, "replay", from, cursor, options)
}

func (c *Client) replay(ctx context.Context, webhookID, what string, from time.Time, cursor string, options []Option) (*Replay, error) {
	return fetch[Replay](ctx, c, post(options, "webhooks", webhookID, what).with(SinceRequest{from.UTC(), cursor}))
}

// WebhookMessage is a delivery as a receiver gets it, in either content mode. Verifier.Verify gives one. In the binary mode EventID,
// Name, Source, Subject (and so JobID), Time, Sequence and WorkKind come from ce- headers, which only a Verifier with Keys protects.
type WebhookMessage struct {
	WebhookID   string // webhook-id: of the delivery, the same on each try
	EventID     string // ce-id
	Name        string // ce-type: job.failed, for example
	Source      string
	Subject     string
	Time        time.Time
	Sequence    int    // place in the job's log, from 1; 0 if it is not of a job
	WorkKind    string // of the job; "" if it is not of a job
	ContentType string
	Data        json.RawMessage
	ReceivedAt  time.Time // when it was read
}

// ParseDelivery reads a delivery's CloudEvent, of the binary or the structured mode, and verifies nothing: it is for what was verified
// and then kept. Receivers use Verifier.Verify.
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
	// What is absent or malformed stays zero.
	m.Time, _ = time.Parse(time.RFC3339Nano, strings.ToUpper(attribute("time")))
	if n, err := strconv.Atoi(attribute("sequence")); err == nil && n > 0 {
		m.Sequence = n
	}
	return m, nil
}

// JobID is the job that the message is about; "" if it is not about one.
func (m *WebhookMessage) JobID() string {
	if id, ok := strings.CutPrefix(m.Subject, "jobs/"); ok {
		return id
	}
	return ""
}

// Outcome reads the data as an outcome document: all messages about jobs and batches have one. As with ParseOutcome, Warnings are the
// caller's to log.
func (m *WebhookMessage) Outcome() (*Outcome, error) {
	return parseOutcome(m.ContentType, m.Data, m.ReceivedAt)
}

// SigningKeys reads the keys that deliveries are signed with, by their ids. For a Verifier use Directory, which keeps them up to date.
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
			keys[key.Kid] = x // keys of other kinds are not for these signatures
		}
	}
	return keys, nil
}

// Caching of the published keys, as docs/reference/webhooks.md asks of receivers.
const (
	keepKeys    = 5 * time.Minute
	askAgain    = time.Minute      // for a key that is not among them
	afterError  = 5 * time.Second  // when the keys could not be read
	useOldKeys  = time.Hour        // while they cannot be read
	waitForKeys = 10 * time.Second // by a verification
)

// Directory keeps the service's published keys: for five minutes, and it reads them once more, at most once a minute, when a key is not
// among them. It is safe for use by several goroutines. Its Key is a Verifier's Keys.
type Directory struct {
	c      *Client
	mu     sync.Mutex // not held while asking
	keys   map[string]ed25519.PublicKey
	read   time.Time     // when keys was read
	next   time.Time     // not to be asked again before
	err    error         // why the latest reading failed
	asking chan struct{} // closed when the reading under way is over; nil if there is none
}

// Directory makes one for the client's service. Its URL should be https.
func (c *Client) Directory() *Directory { return &Directory{c: c} }

// Key finds a key. One that is known and fresh is answered at once; those who need a reading wait for the same one. While the service
// cannot be asked, keys that were read before stay in use for an hour.
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
		return nil, errors.Join(d.err, errors.New("client: the signature's key may be a new one"))
	case !known:
		return nil, refused("the signature's key is not published")
	}
	return key, nil
}

// ask reads the keys. It is called with the lock, and gives it back meanwhile.
func (d *Directory) ask(now time.Time) {
	d.asking = make(chan struct{})
	d.mu.Unlock()
	var keys map[string]ed25519.PublicKey
	err := errors.New("client: the keys were not read")
	defer func() { // deferred, so that waiters are released if the transport panics
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
