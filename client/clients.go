package client

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// CreateClient makes a client and gives its id. A request whose answer is lost is sent again with the same idempotency key, so that there
// is one client.
func (c *Client) CreateClient(ctx context.Context, options ...Option) (clientID string, err error) {
	created, err := fetch[CreatedClient](ctx, c, post(options, "clients").keyed())
	if err != nil {
		return "", err
	}
	return created.ClientID, nil
}

// String names the key, and does not show it.
func (k Key) String() string { return "API key " + k.KeyID }

// Format writes String for every verb.
func (k Key) Format(f fmt.State, _ rune) { format(f, k) }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// CreateKey makes the first key of a client or, with rotate, a further one. Without rotate a client that has a key gets its data with no
// APIKey. It is not repeated, since only one answer has the key.
func (c *Client) CreateKey(ctx context.Context, clientID string, rotate bool, options ...Option) (*Key, error) {
	return fetch[Key](ctx, c, post(options, "clients", clientID, "keys").with(KeyRequest{Rotate: rotate}).once())
}

// RevokeKey ends a key at once. Safe to repeat.
func (c *Client) RevokeKey(ctx context.Context, clientID, keyID string, options ...Option) error {
	r := post(options, "clients", clientID, "keys", "revoke").with(map[string]string{"key_id": keyID})
	a, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	return r.confirmed(a, "revoked")
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
