// Package operator sends requests to the operator API, /admin/v1 on the admin listener.
package operator

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/client"
)

// Path is where the operator API is.
const Path = "/admin/v1"

// Client sends requests with one token.
type Client struct {
	*client.Client
	base string
}

// New makes a client of the admin listener at base; token may be "".
func New(base, token, userAgent string) (*Client, error) {
	base = strings.TrimSuffix(strings.TrimRight(base, "/"), Path)
	c, err := client.New(client.Config{URL: base, Key: token, UserAgent: userAgent})
	if err != nil {
		return nil, errors.New("the address of the admin listener must look like http://127.0.0.1:8081")
	}
	return &Client{c, base}, nil
}

// Console is the address of the console.
func (c *Client) Console() string { return c.base + "/" }

// Get reads; query may be nil.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	return c.Client.Do(ctx, http.MethodGet, Path+path, query, nil)
}

// List reads a list page by page; limit is how many entries are wanted, 0 for all.
func (c *Client) List(ctx context.Context, path string, query url.Values, limit int) iter.Seq2[json.RawMessage, error] {
	if limit > 0 {
		query.Set("limit", strconv.Itoa(min(100, limit)))
	}
	return c.Client.List(ctx, Path+path, query)
}

// Do sends a change, once.
func (c *Client) Do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	// Also without a body: what no form of a page can send.
	return c.Client.Do(ctx, method, Path+path, nil, body, client.Header("Content-Type", "application/json"))
}
