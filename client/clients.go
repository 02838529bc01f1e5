package client

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
)

// CreateClient makes a client and gives its id. It is not repeated: a lost
// answer leaves a client that nobody knows.
func (c *Client) CreateClient(ctx context.Context, options ...Option) (clientID string, err error) {
	r, err := post(options, "v1", "clients")
	if err != nil {
		return "", err
	}
	r.repeat = never
	var made struct {
		ClientID string `json:"client_id"`
	}
	a, err := c.call(ctx, r, &made)
	if err == nil {
		err = r.checkID(a, made.ClientID)
	}
	return made.ClientID, err
}

// CreateKey makes the first key of a client or, with rotate, a further one.
// Without rotate a client that has a key is told its data with no APIKey. It
// is not repeated, since only one answer has the key.
func (c *Client) CreateKey(ctx context.Context, clientID string, rotate bool, options ...Option) (*Key, error) {
	r, err := post(options, "v1", "clients", clientID, "keys")
	if err != nil {
		return nil, err
	}
	r.body = []byte(`{}`)
	if rotate {
		r.body = []byte(`{"rotate":true}`)
	}
	return c.key(ctx, r)
}

// RenewKey makes a new key in place of the current one, which stays valid for
// a while. It is not repeated.
func (c *Client) RenewKey(ctx context.Context, clientID string, options ...Option) (*Key, error) {
	r, err := post(options, "v1", "clients", clientID, "keys", "renew")
	if err != nil {
		return nil, err
	}
	return c.key(ctx, r)
}

func (c *Client) key(ctx context.Context, r *request) (*Key, error) {
	r.repeat, r.secret = never, true
	key := &Key{}
	a, err := c.call(ctx, r, key)
	if err != nil {
		return nil, err
	}
	key.RequestID = a.requestID()
	return key, nil
}

// RevokeKey ends a key at once. Safe to repeat.
func (c *Client) RevokeKey(ctx context.Context, clientID, keyID string, options ...Option) error {
	r, err := post(options, "v1", "clients", clientID, "keys", "revoke")
	if err != nil {
		return err
	}
	body := struct {
		KeyID string `json:"key_id"`
	}{keyID}
	if r.body, err = encode(body); err != nil {
		return err
	}
	var answered struct {
		Revoked bool `json:"revoked"`
	}
	a, err := c.call(ctx, r, &answered)
	if err == nil && !answered.Revoked {
		err = r.wrong(a, "it does not say that the key is revoked")
	}
	return err
}

// Health asks whether the process answers at all.
func (c *Client) Health(ctx context.Context) error {
	r := &request{method: http.MethodGet, path: "/healthz"}
	var answered struct {
		Status string `json:"status"`
	}
	a, err := c.call(ctx, r, &answered)
	if err == nil && answered.Status == "" {
		err = r.wrong(a, "it has no status")
	}
	return err
}

// Ready asks once whether the service can do its work. A service that cannot
// is an answer, not an error.
func (c *Client) Ready(ctx context.Context) (*Readiness, error) {
	readiness := &Readiness{}
	r := &request{method: http.MethodGet, path: "/readyz", repeat: never}
	a, err := c.call(ctx, r, readiness)
	if err == nil && readiness.Status == "" {
		err = r.wrong(a, "it has no status")
	}
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusServiceUnavailable {
		members(problem.Extensions).readiness(readiness)
		readiness.Status = orDefault(readiness.Status, "unavailable")
		return readiness, nil
	}
	if err != nil {
		return nil, err
	}
	return readiness, nil
}

func (m members) readiness(into *Readiness) {
	if json.Unmarshal(m["checks"], &into.Checks) != nil {
		into.Checks = nil
	}
}

// KeySet is a set of published keys by their ids.
type KeySet map[string]ed25519.PublicKey

// Key finds a key for Verifier.Keys.
func (s KeySet) Key(keyID string) (ed25519.PublicKey, error) {
	key, ok := s[keyID]
	if !ok {
		return nil, refused("the signature's key is not published")
	}
	return key, nil
}

// SigningKeys reads the keys that deliveries are signed with. Directory keeps
// them up to date.
func (c *Client) SigningKeys(ctx context.Context) (KeySet, error) {
	var directory struct {
		Keys []struct {
			KTY string `json:"kty"`
			CRV string `json:"crv"`
			KID string `json:"kid"`
			X   string `json:"x"`
		} `json:"keys"`
	}
	r := &request{method: http.MethodGet, path: "/.well-known/http-message-signatures-directory"}
	r.set("Accept", "application/http-message-signatures-directory+json, application/json")
	a, err := c.call(ctx, r, &directory)
	if err == nil && directory.Keys == nil {
		err = r.wrong(a, "it has no keys")
	}
	if err != nil {
		return nil, err
	}
	keys := KeySet{}
	for _, key := range directory.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key.X)
		if key.KTY == "OKP" && key.CRV == "Ed25519" && err == nil && len(x) == ed25519.PublicKeySize {
			keys[key.KID] = x // keys of other kinds are not for these signatures
		}
	}
	return keys, nil
}
