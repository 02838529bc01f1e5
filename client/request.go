package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Answers are read up to these sizes.
const (
	maxAnswer  = 8 << 20
	maxResult  = 64 << 20
	maxExcerpt = 1 << 10
)

// request is one call of the API, which may take several tries.
type request struct {
	method string
	base   string // of the client that sends it
	path   string // after the base address, escaped
	query  url.Values
	body   []byte
	id     string // that the answer must have; "" for any
	repeat repetition
	secret bool // the answer has a key or secret: no error shows its body
	raw    bool // the answer may be of any type, not only JSON
	limit  int  // of the answer in bytes; 0: maxAnswer
	settings
}

// get makes a request of /v1 and the segments; send returns a mistake in them.
func get(options []Option, segments ...string) *request {
	return newRequest(http.MethodGet, options, segments)
}

func post(options []Option, segments ...string) *request {
	return newRequest(http.MethodPost, options, segments)
}

// newRequest escapes the segments: ids are opaque and may have any character.
func newRequest(method string, options []Option, segments []string) *request {
	r := &request{method: method, path: "/v1", settings: gather(options)}
	for _, segment := range segments {
		escaped := url.PathEscape(segment)
		switch segment {
		case "":
			r.err = errors.New("client: an id is empty") // the path would name another resource
		case ".", "..":
			escaped = strings.ReplaceAll(segment, ".", "%2E") // dot segments change the path
		}
		r.path += "/" + escaped
	}
	return r
}

// of sets the id that the answer must have.
func (r *request) of(id string) *request { r.id = id; return r }

// with sets the body. An error is the caller's: a value that JSON cannot show.
func (r *request) with(value any) *request {
	body, err := json.Marshal(value)
	if err != nil {
		r.err = fmt.Errorf("client: %w", err)
	}
	r.body = body
	return r
}

// keyed gives the request an idempotency key: the caller's, or a random one.
// Its repetitions have the same.
func (r *request) keyed() *request {
	if r.header["Idempotency-Key"] == nil {
		r.set("Idempotency-Key", rand.Text()+rand.Text()) // 52 characters; without credentials 32 are the least
	}
	return r
}

// answer is a complete answer of 2xx.
type answer struct {
	status int
	header http.Header
	body   []byte
	tries  int
}

func (a *answer) requestID() string { return a.header.Get("X-Request-Id") }

func (a *answer) replayed() bool { return a.header.Get("Idempotency-Replayed") == "true" }

// send sends the request, again where that is safe and may help, and gives the answer.
func (c *Client) send(ctx context.Context, r *request) (a *answer, err error) {
	r.base = c.base
	if err := cmp.Or(c.err, r.err, ctx.Err()); err != nil {
		return nil, err // nothing was sent
	}
	err = c.retry(ctx, r, func(try int) error {
		a, err = c.try(ctx, r, try)
		return err
	}, func(err error, try int) (time.Duration, bool) { return c.again(ctx, r, err, try) })
	return a, err
}

// try sends the request once.
func (c *Client) try(ctx context.Context, r *request, try int) (*answer, error) {
	limited := ctx
	if c.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, c.timeout+r.wait)
		defer cancel()
	}
	response, err := c.roundTrip(limited, r)
	if err != nil {
		return nil, r.lost(err, try)
	}
	defer response.Body.Close()
	limit := cmp.Or(r.limit, maxAnswer)
	body, err := readBody(response, limit)
	// The status counts before the body, which can say anything. That a request
	// was refused is known without the rest of the body.
	a := &answer{response.StatusCode, response.Header, body, try}
	success := a.status >= 200 && a.status <= 299
	switch {
	case err != nil && (success || ctx.Err() != nil):
		return nil, r.lost(err, try)
	case a.status == http.StatusNotModified && r.header["If-None-Match"] != nil:
		return nil, ErrNotModified
	case !success:
		return nil, c.refusal(r, a)
	case len(body) > limit:
		return nil, r.unexpected(a, fmt.Sprintf("it has more than %d bytes", limit))
	case !r.raw && !isJSON(a.header) && a.status != http.StatusNoContent:
		return nil, r.unexpected(a, "it is not JSON")
	}
	return a, nil
}

// roundTrip sends one request. Its body has no GetBody, so that net/http does
// not repeat a submission by itself: MaxTries counts all requests.
func (c *Client) roundTrip(ctx context.Context, r *request) (*http.Response, error) {
	target := r.url()
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader = http.NoBody
	if r.body != nil {
		body = io.NopCloser(bytes.NewReader(r.body))
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	sent.ContentLength = int64(len(r.body))
	sent.Header.Set("Accept", "application/json")
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(sent.Header, r.header)
	sent.Header.Set("Accept-Encoding", "identity") // digests are of the bytes as they are stored
	sent.Header.Set("User-Agent", c.userAgent)
	if auth := c.auth(); auth != "" {
		sent.Header.Set("Authorization", auth)
	}
	return c.transport.RoundTrip(sent)
}

// readBody reads up to one byte more than limit.
func readBody(response *http.Response, limit int) ([]byte, error) {
	var body bytes.Buffer
	if size := response.ContentLength; size > 0 {
		body.Grow(int(min(size, int64(limit))) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(response.Body, int64(limit)+1))
	return body.Bytes(), err
}

// call sends a request and decodes the JSON of its answer, which must have the ids.
func (c *Client) call(ctx context.Context, r *request, into any, ids ...*string) (*answer, error) {
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return a, r.decode(a, into, ids...)
}

// fetch sends a request and decodes its answer. take adds what the headers say, and gives the id that must be there; nil for none.
func fetch[T any](ctx context.Context, c *Client, r *request, take func(*T, *answer) *string) (*T, error) {
	value := new(T)
	a, err := c.call(ctx, r, value)
	if err != nil {
		return nil, err
	}
	if id := take(value, a); id != nil {
		if err := r.checkID(a, *id); err != nil {
			return nil, err
		}
	}
	return value, nil
}

// confirm sends a request whose answer must have true in the member.
func (c *Client) confirm(ctx context.Context, r *request, member, otherwise string) error {
	var answered members
	a, err := c.call(ctx, r, &answered)
	if err == nil && string(answered[member]) != "true" {
		err = r.unexpected(a, otherwise)
	}
	return err
}

// decode reads the answer's body. Members that are not known are ignored, and
// absent ones stay zero, but for the ids.
func (r *request) decode(a *answer, into any, ids ...*string) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		reason := "its JSON cannot be read"
		if !r.secret {
			reason += ": " + err.Error()
		}
		return r.unexpected(a, reason)
	}
	for _, id := range ids {
		if err := r.checkID(a, *id); err != nil {
			return err
		}
	}
	return nil
}

// checkID compares ids without regard to case, since the service takes both and answers with one.
func (r *request) checkID(a *answer, id string) error {
	switch {
	case id == "":
		return r.unexpected(a, "it has no id")
	case r.id != "" && !strings.EqualFold(id, r.id):
		return r.unexpected(a, "it is about another id than was asked for")
	}
	return nil
}

func isJSON(h http.Header) bool {
	kind := mediaType(h.Get("Content-Type"))
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

// maxEmptyPages is how many empty pages of a list may follow each other.
const maxEmptyPages = 100

// list reads a list to its end, page by page as it is iterated. A page may be short or empty before
// that. If open, the last page has a cursor too, and is empty.
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

// pageQuery is the query that the filters of lists share.
func pageQuery(size int, after, before time.Time) url.Values {
	q := url.Values{}
	if size > 0 {
		q.Set("limit", strconv.Itoa(size))
	}
	if !after.IsZero() {
		q.Set("created_after", apiTime(after))
	}
	if !before.IsZero() {
		q.Set("created_before", apiTime(before))
	}
	return q
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// apiTime gives a time as the API takes it.
func apiTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
