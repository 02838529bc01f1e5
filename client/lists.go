package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// where adds parameters of the query, names and values in turn; a value that is "" is left out.
func (r *request) where(pairs ...string) *request {
	if r.query == nil {
		r.query = url.Values{}
	}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			r.query.Set(pair[0], pair[1])
		}
	}
	return r
}

// page adds the parameters that filters of lists share.
func (r *request) page(size int, after, before time.Time) *request {
	if size > 0 {
		r.where("limit", strconv.Itoa(size))
	}
	if !after.IsZero() {
		r.where("created_after", apiTime(after))
	}
	if !before.IsZero() {
		r.where("created_before", apiTime(before))
	}
	return r
}

// List reads a list that has no method here, as Do does.
func (c *Client) List(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return list[json.RawMessage](ctx, c, &request{method: http.MethodGet, path: path, query: query, limit: maxResult}, false)
}

// maxEmptyPages is how many empty pages of a list may follow each other.
const maxEmptyPages = 100

// list reads a list to its end, page by page as it is iterated. A page may be short or empty before that. If open, the last page has a
// cursor too, and is empty.
func list[T any](ctx context.Context, c *Client, first *request, open bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r := *first
		r.query = url.Values{}
		maps.Copy(r.query, first.query)
		for empty := 0; ; {
			var page struct {
				Data []T `json:"data"`
				Page struct {
					NextCursor string `json:"next_cursor"`
				} `json:"page"`
			}
			a, err := c.call(ctx, &r, &page)
			if err == nil && page.Data == nil {
				err = r.unexpected(a, "it is not a list")
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
			case next == "" || open && empty > 0:
				return
			case next == r.query.Get("cursor"):
				yield(none, r.unexpected(a, "its next_cursor is the cursor of the request: the list would never end"))
				return
			case empty == maxEmptyPages:
				yield(none, r.unexpected(a, "too many empty pages"))
				return
			}
			r.query.Set("cursor", next)
		}
	}
}

// collect reads a list into a slice.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// apiTime gives a time as the API takes it.
func apiTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
