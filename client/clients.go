package client

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// CreateClient makes a client and gives its id. A request whose answer is lost is
// sent again with the same idempotency key, so that there is one client.
func (c *Client) CreateClient(ctx context.Context, options ...Option) (clientID string, err error) {
	r := post(options, "clients").keyed()
	var created struct {
		ClientID string `json:"client_id"`
	}
	_, err = c.call(ctx, r, &created, &created.ClientID)
	return created.ClientID, err
}

// Key is an API key, or what is known of the current one, without APIKey.
type Key struct {
	APIKey    string    `json:"api_key"`
	KeyID     string    `json:"key_id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Replayed  bool      `json:"-"` // the idempotency key was used before: there is no APIKey
	RequestID string    `json:"-"`
}

// String names the key, and does not show it.
func (k Key) String() string { return "API key " + k.KeyID }

// Format writes String for every verb.
func (k Key) Format(f fmt.State, _ rune) { format(f, k) }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// CreateKey makes the first key of a client or, with rotate, a further one.
// Without rotate a client that has a key gets its data with no APIKey. It is
// not repeated, since only one answer has the key.
func (c *Client) CreateKey(ctx context.Context, clientID string, rotate bool, options ...Option) (*Key, error) {
	body := struct {
		Rotate bool `json:"rotate,omitempty"`
	}{rotate}
	return c.key(ctx, post(options, "clients", clientID, "keys").with(body))
}

// RenewKey makes a new key in place of the current one, which stays valid for
// a while. A key that expired not long ago can be renewed too. It is not repeated,
// since only one answer has the key: if that was lost, call it again.
func (c *Client) RenewKey(ctx context.Context, clientID string, options ...Option) (*Key, error) {
	return c.key(ctx, post(options, "clients", clientID, "keys", "renew"))
}

func (c *Client) key(ctx context.Context, r *request) (*Key, error) {
	r.repeat, r.secret = never, true
	return fetch(ctx, c, r, func(k *Key, a *answer) *string {
		k.RequestID, k.Replayed = a.requestID(), a.replayed()
		return &k.KeyID
	})
}

// RevokeKey ends a key at once. Safe to repeat.
func (c *Client) RevokeKey(ctx context.Context, clientID, keyID string, options ...Option) error {
	r := post(options, "clients", clientID, "keys", "revoke").with(map[string]string{"key_id": keyID})
	return c.confirm(ctx, r, "revoked", "it does not say that the key is revoked")
}
