package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/url"
)

// pages reads a list to its end. A page may be short or empty before that.
func pages[T any](ctx context.Context, c *Client, q url.Values, segments ...string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r, err := get(nil, segments...)
		if err != nil {
			yield(none, err)
			return
		}
		r.query = url.Values{}
		for name, values := range q {
			r.query[name] = values
		}
		for {
			var page struct {
				Data []T `json:"data"`
				Page struct {
					NextCursor string `json:"next_cursor"`
				} `json:"page"`
			}
			a, err := c.call(ctx, r, &page)
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			next := page.Page.NextCursor
			if next == "" {
				return
			}
			if next == r.query.Get("cursor") {
				// Such a list would never end.
				yield(none, &UnexpectedError{
					Method: r.method, Path: r.path, Status: a.status, Tries: a.tries, RequestID: a.requestID(),
					ContentType: first(a.header, "Content-Type"), Reason: "its next_cursor is the cursor of the request",
				})
				return
			}
			r.query.Set("cursor", next)
		}
	}
}

// newKey makes an idempotency key of 26 random characters.
func newKey() string { return rand.Text() }
