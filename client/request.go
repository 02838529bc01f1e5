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
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	maxResponse = 8 << 20
	maxResult   = 64 << 20
	maxExcerpt  = 1 << 10
)

type request struct {
	method string
	base   string
	path   string // escaped
	query  url.Values
	body   []byte
	id     string // expected id in the response; "" for any
	repeat repetition
	secret bool // the response has a key or secret, so errors do not show the body
	raw    bool // the response may be of any type, not only JSON
	limit  int  // 0: maxResponse
	settings
}

// get returns a GET request. Its path is /v1 followed by the segments. If a segment is empty, send returns an error.
func get(options []Option, segments ...string) *request {
	return newRequest(http.MethodGet, options, segments...)
}

func post(options []Option, segments ...string) *request {
	return newRequest(http.MethodPost, options, segments...)
}

// newRequest escapes the segments: ids are opaque and may have any characters.
func newRequest(method string, options []Option, segments ...string) *request {
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

func (r *request) of(id string) *request { r.id = id; return r }

// with sets the body. If JSON cannot represent the value, send returns the error.
func (r *request) with(value any) *request {
	body, err := json.Marshal(value)
	if err != nil {
		r.err = fmt.Errorf("client: %w", err)
	}
	r.body = body
	return r
}

func (r *request) once() *request { r.repeat = never; return r }

// keyed sets the idempotency key: the caller's or a random one. Retries have the same key.
func (r *request) keyed() *request {
	if r.header["Idempotency-Key"] == nil {
		r.set("Idempotency-Key", rand.Text()+rand.Text()) // 52 characters; 32 are required without credentials
	}
	return r
}

type fullResponse struct {
	status   int
	header   http.Header
	body     []byte
	tries    int
	received time.Time
}

func (a *fullResponse) requestID() string { return a.header.Get("X-Request-Id") }

func (c *Client) send(ctx context.Context, r *request) (a *fullResponse, err error) {
	r.base = c.base
	if err := cmp.Or(c.keyErr, c.sessionErr, r.err, ctx.Err()); err != nil {
		return nil, err // nothing was sent
	}
	err = c.retry(ctx, r, func(try int) error {
		a, err = c.try(ctx, r, try)
		return err
	}, func(err error, try int) (time.Duration, bool) { return c.again(ctx, r, err, try) })
	return a, err
}

func (c *Client) try(ctx context.Context, r *request, try int) (*fullResponse, error) {
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
	limit := cmp.Or(r.limit, maxResponse)
	body, err := readBody(response, limit)
	// Check the status before the body. A refusal is valid even if its body is incomplete.
	a := &fullResponse{response.StatusCode, response.Header, body, try, c.now()}
	success := a.status >= 200 && a.status <= 299
	switch {
	case err != nil && (success || ctx.Err() != nil):
		return nil, r.lost(err, try)
	case a.status == http.StatusNotModified && r.header["If-None-Match"] != nil:
		return nil, ErrNotModified
	case !success:
		return nil, r.refusal(a)
	case len(body) > limit:
		return nil, r.unexpected(a, fmt.Sprintf("it has more than %d bytes", limit))
	case !r.raw && !isJSON(a.header) && a.status != http.StatusNoContent:
		return nil, r.unexpected(a, "it is not JSON")
	}
	return a, nil
}

// readBody reads one byte more than the limit, so that the caller notices a body that is too large.
func readBody(response *http.Response, limit int) ([]byte, error) {
	var body bytes.Buffer
	if size := response.ContentLength; size > 0 {
		body.Grow(int(min(size, int64(limit))) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(response.Body, int64(limit)+1))
	return body.Bytes(), err
}

func (c *Client) call(ctx context.Context, r *request, into any) (*fullResponse, error) {
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return a, r.decode(a, into)
}

// A type with a LogValue method has secrets, so errors do not show its response.
func fetch[T any](ctx context.Context, c *Client, r *request) (*T, error) {
	value := new(T)
	_, r.secret = any(value).(slog.LogValuer)
	if _, err := c.call(ctx, r, value); err != nil {
		return nil, err
	}
	return value, nil
}

// remove deletes a resource. A 404 on a retry counts as deleted.
func (c *Client) remove(ctx context.Context, options []Option, segments ...string) error {
	r := newRequest(http.MethodDelete, options, segments...)
	a, err := c.send(ctx, r)
	var problem *Problem
	if errors.As(err, &problem) && problem.Status == http.StatusNotFound && problem.Tries > 1 {
		return nil
	}
	if err != nil || a.status == http.StatusNoContent {
		return err
	}
	return r.confirmed(a, "deleted")
}

// Do sends any request, for example to the operator API, and returns the response's body. path is relative to the base address. A body
// that is not nil is encoded as JSON. Only GET requests are retried.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body any, options ...Option) (json.RawMessage, error) {
	r := &request{method: method, path: path, query: query, limit: maxResult, settings: gather(options)}
	if method != http.MethodGet {
		r.repeat = never
	}
	if body != nil {
		r.with(body)
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

func (r *request) confirmed(a *fullResponse, member string) error {
	var answered members
	if err := r.decode(a, &answered); err != nil {
		return err
	}
	if string(answered[member]) != "true" {
		return r.unexpected(a, "it does not say: "+member)
	}
	return nil
}

// decode ignores unknown members. Members may be absent, except the id of a resource, which must be the requested id.
func (r *request) decode(a *fullResponse, into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		reason := "its JSON cannot be read"
		if !r.secret {
			reason += ": " + err.Error()
		}
		return r.unexpected(a, reason)
	}
	if meta, ok := into.(interface{ fill(*fullResponse) }); ok {
		meta.fill(a)
	}
	if identified, ok := into.(interface{ id() string }); ok {
		return r.checkID(a, identified.id())
	}
	return nil
}

// checkID ignores case, because the service accepts and returns ids in either case.
func (r *request) checkID(a *fullResponse, id string) error {
	switch {
	case id == "":
		return r.unexpected(a, "it has no id")
	case r.id != "" && !strings.EqualFold(id, r.id):
		return r.unexpected(a, "its id is not the requested one")
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

// Meta has the status and headers of a response.
type Meta struct {
	Status     int
	RequestID  string
	Location   string
	ETag       string        // for IfNoneMatch
	Replayed   bool          // the response is the first one for this idempotency key, sent again without secrets
	RetryAfter time.Duration // 0: not given
}

func (m *Meta) meta() *Meta { return m }

func (m *Meta) fill(a *fullResponse) {
	*m = Meta{
		Status: a.status, RequestID: a.requestID(), Location: a.header.Get("Location"), ETag: a.header.Get("Etag"),
		Replayed: a.header.Get("Idempotency-Replayed") == "true", RetryAfter: retryAfter(a.header, a.received),
	}
}

func (b *Batch) id() string         { return b.BatchID }
func (b *BatchReceipt) id() string  { return b.BatchID }
func (b *Bulk) id() string          { return b.BulkID }
func (b *BulkReceipt) id() string   { return b.BulkID }
func (a *Accepted) id() string      { return a.JobID }
func (c *Changed) id() string       { return c.JobID }
func (c *CreatedClient) id() string { return c.ClientID }
func (d *Delivery) id() string      { return d.DeliveryID }
func (k *Key) id() string           { return k.KeyID }
func (r *Readiness) id() string     { return r.Status }
func (r *Report) id() string        { return r.JobID }
func (s *Schedule) id() string      { return s.ScheduleID }
func (s *Session) id() string       { return s.SessionID }
func (v *Verdict) id() string       { return v.SessionID }
func (w *Webhook) id() string       { return w.WebhookID }
