package client

import (
	"context"
	"crypto/rand"
	"iter"
	"maps"
	"net/url"
)

// maxEmptyPages is how many may follow each other, so that no list goes on for
// ever without anything to show for it.
const maxEmptyPages = 100

// list is what a list request asks for.
type list[T any] struct {
	c        *Client
	segments []string
	query    url.Values
	endless  bool // its last page has a cursor too, and is empty
}

func pages[T any](ctx context.Context, c *Client, q url.Values, segments ...string) iter.Seq2[T, error] {
	return list[T]{c: c, segments: segments, query: q}.read(ctx)
}

// read reads the list to its end. A page may be short or empty before that.
func (l list[T]) read(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r, err := get(nil, l.segments...)
		if err != nil {
			yield(none, err)
			return
		}
		r.query = url.Values{}
		maps.Copy(r.query, l.query)
		for empty := 0; ; {
			var page struct {
				Data []T `json:"data"`
				Page struct {
					NextCursor string `json:"next_cursor"`
				} `json:"page"`
			}
			a, err := l.c.call(ctx, r, &page)
			if err == nil && page.Data == nil {
				err = r.wrong(a, "it is not a list")
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			if empty++; len(page.Data) > 0 {
				empty = 0
			}
			next := page.Page.NextCursor
			switch {
			case next == "" || l.endless && empty > 0:
				return
			case next == r.query.Get("cursor"):
				err = r.wrong(a, "its next_cursor is the cursor of the request: the list would never end")
			case empty == maxEmptyPages:
				err = r.wrong(a, "too many empty pages")
			}
			if err != nil {
				yield(none, err)
				return
			}
			r.query.Set("cursor", next)
		}
	}
}

// newKey makes an idempotency key of 26 random characters.
func newKey() string { return rand.Text() }
