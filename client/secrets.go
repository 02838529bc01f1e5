package client

import (
	"fmt"
	"log/slog"
	"net/url"
)

// What follows keeps keys and secrets out of logs: the types that have one
// print without it, whatever the verb, and so does log/slog with each of them
// that it gets by itself. JSON has them.

// String says where requests go.
func (c *Client) String() string {
	return "client of " + c.base.Scheme + "://" + c.base.Host + c.prefix
}

// Format writes String for every verb.
func (c *Client) Format(f fmt.State, _ rune) { write(f, c) }

// String says where requests go.
func (c Config) String() string { return "configuration of a client of " + withoutUser(c.URL) }

// withoutUser leaves out what can have a password.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	u.User = nil
	return u.String()
}

// Format writes String for every verb.
func (c Config) Format(f fmt.State, _ rune) { write(f, c) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// String names the webhook and its address.
func (w Webhook) String() string { return "webhook " + w.WebhookID + " to " + withoutUser(w.URL) }

// Format writes String for every verb.
func (w Webhook) Format(f fmt.State, _ rune) { write(f, w) }

// LogValue is String.
func (w Webhook) LogValue() slog.Value { return slog.StringValue(w.String()) }

// String names the key, and does not show it.
func (k Key) String() string { return "API key " + k.KeyID }

// Format writes String for every verb.
func (k Key) Format(f fmt.State, _ rune) { write(f, k) }

// LogValue is String.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// String does not show the secret.
func (v Verifier) String() string { return "verifier of deliveries" }

// Format writes String for every verb.
func (v Verifier) Format(f fmt.State, _ rune) { write(f, v) }

// LogValue is String.
func (v Verifier) LogValue() slog.Value { return slog.StringValue(v.String()) }

func write(f fmt.State, s fmt.Stringer) { _, _ = f.Write([]byte(s.String())) }
