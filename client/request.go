package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Answers are read up to these sizes.
const (
	maxAnswer  = 8 << 20
	maxResult  = 64 << 20
	maxExcerpt = 1 << 10
)

// Header values that every request has are shared: net/http does not change
// them.
var (
	jsonType     = []string{"application/json"}
	plainCoding  = []string{"identity"} // digests are of the bytes as they are stored
	contentTypes = []string{"application/json"}
)

// request is one call of the API, which may take several tries.
type request struct {
	method string
	path   string // after the base address, escaped
	query  url.Values
	body   []byte
	once   bool // it is not safe to send it again
	limit  int  // of the answer in bytes; 0: maxAnswer
	settings
}

// answer is a complete answer of 2xx.
type answer struct {
	status int
	header http.Header
	body   []byte
	tries  int
}

func (a *answer) requestID() string { return first(a.header, "X-Request-Id") }

// first is Header.Get for a name that is canonical already.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// send sends the request, again where that is safe and may help, and gives the
// answer.
func (c *Client) send(ctx context.Context, r *request) (*answer, error) {
	if r.err != nil {
		return nil, r.err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // nothing was sent
	}
	for try := 1; ; try++ {
		a, err := c.try(ctx, r, try)
		if err == nil {
			a.tries = try
			return a, nil
		}
		wait, again := c.again(ctx, r, err, try)
		if !again {
			return nil, err
		}
		c.log.DebugContext(ctx, "forgerun: repeating a request", "method", r.method, "path", r.path, "try", try, "wait", wait, "error", err)
		if c.sleep(ctx, wait) != nil {
			return nil, err // what the last try ended with says more than that the time is over
		}
	}
}

// try sends the request once.
func (c *Client) try(ctx context.Context, r *request, try int) (*answer, error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout+r.wait)
		defer cancel()
	}
	response, err := c.transport.RoundTrip(c.build(ctx, r))
	if err != nil {
		return nil, &NoAnswerError{Method: r.method, Path: r.path, Tries: try, Err: err}
	}
	defer response.Body.Close()
	limit := orDefault(r.limit, maxAnswer)
	body, err := readBody(response, limit)
	if err != nil {
		return nil, &NoAnswerError{Method: r.method, Path: r.path, Tries: try, Err: err}
	}
	// The status is looked at before the body: a body can say anything.
	switch {
	case response.StatusCode == http.StatusNotModified:
		return nil, ErrNotModified
	case response.StatusCode < 200 || response.StatusCode > 299:
		return nil, c.refusal(r, response, body, try)
	case len(body) > limit:
		return nil, unexpected(r, response, body, try, fmt.Sprintf("it has more than %d bytes", limit))
	}
	return &answer{status: response.StatusCode, header: response.Header, body: body}, nil
}

// build makes the request of one try. Its body cannot be read again, so that
// net/http does not repeat a submission by itself: MaxTries counts all of them.
func (c *Client) build(ctx context.Context, r *request) *http.Request {
	header := make(http.Header, 8)
	for name, values := range r.header {
		header[name] = values
	}
	if header["Accept"] == nil {
		header["Accept"] = jsonType
	}
	header["Accept-Encoding"] = plainCoding
	header["User-Agent"] = c.userAgent
	if c.auth != nil {
		header["Authorization"] = c.auth
	}
	target := c.base
	raw := c.prefix + r.path
	target.Path = raw
	if strings.IndexByte(raw, '%') >= 0 {
		if plain, err := url.PathUnescape(raw); err == nil {
			target.Path, target.RawPath = plain, raw
		}
	}
	if len(r.query) > 0 {
		target.RawQuery = r.query.Encode()
	}
	request := &http.Request{
		Method: r.method, URL: &target, Host: target.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	request.Body = http.NoBody
	if r.body != nil {
		if header["Content-Type"] == nil {
			header["Content-Type"] = contentTypes
		}
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	return request.WithContext(ctx)
}

// readBody reads up to one byte more than limit.
func readBody(response *http.Response, limit int) ([]byte, error) {
	size := response.ContentLength
	if size == 0 {
		return nil, nil
	}
	if size > int64(limit) {
		return io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	}
	if size > 0 {
		body := make([]byte, size)
		_, err := io.ReadFull(response.Body, body)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return body, err
	}
	return io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
}

// refusal makes an error of an answer that is not 2xx.
func (c *Client) refusal(r *request, response *http.Response, body []byte, try int) error {
	wait := retryAfter(response.Header, c.now())
	if response.StatusCode >= 400 && isJSON(response.Header) {
		p := Problem{
			Status: response.StatusCode, RetryAfter: wait, Tries: try,
			RequestID: first(response.Header, "X-Request-Id"),
		}
		if err := p.read(body); err == nil {
			return &p
		}
	}
	reason := "it is not a problem document"
	if response.StatusCode >= 300 && response.StatusCode <= 399 {
		reason = "redirects are not followed"
	}
	err := unexpected(r, response, body, try, reason)
	err.RetryAfter = wait
	return err
}

// read fills p from a problem document. A member of the wrong type is treated
// as absent (RFC 9457, section 3.1).
func (p *Problem) read(body []byte) error {
	var m members
	if err := json.Unmarshal(body, &m); err != nil || m == nil {
		return errors.New("not a JSON object")
	}
	m.take("type", &p.Type)
	m.take("title", &p.Title)
	m.take("detail", &p.Detail)
	m.take("instance", &p.Instance)
	m.take("code", &p.Code)
	m.take("violations", &p.Violations)
	delete(m, "status")
	p.Extensions = m
	return nil
}

func unexpected(r *request, response *http.Response, body []byte, try int, reason string) *UnexpectedError {
	return &UnexpectedError{
		Method: r.method, Path: r.path, Status: response.StatusCode, Tries: try, Reason: reason,
		ContentType: first(response.Header, "Content-Type"), RequestID: first(response.Header, "X-Request-Id"),
		Body: body[:min(len(body), maxExcerpt)],
	}
}

// call sends a request and decodes the JSON of its answer.
func (c *Client) call(ctx context.Context, r *request, into any) (*answer, error) {
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := decode(r, a, into); err != nil {
		return nil, err
	}
	return a, nil
}

// decode reads the answer's body. Members that are not known are ignored, and
// absent ones stay zero.
func decode(r *request, a *answer, into any) error {
	err := json.Unmarshal(a.body, into)
	if err == nil {
		return nil
	}
	return &UnexpectedError{
		Method: r.method, Path: r.path, Status: a.status, Tries: a.tries, RequestID: a.requestID(),
		ContentType: first(a.header, "Content-Type"), Body: a.body[:min(len(a.body), maxExcerpt)],
		Reason: "its JSON cannot be read: " + err.Error(),
	}
}

// encode makes a request's body. An error is the caller's: a value that JSON
// cannot show.
func encode(value any) ([]byte, error) {
	body, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return body, nil
}

// path joins segments. Ids are opaque, so that they may have any character.
func path(segments ...string) (string, error) {
	var b strings.Builder
	for _, segment := range segments {
		if segment == "" {
			return "", errors.New("client: an id is empty") // it would name another resource
		}
		escaped := url.PathEscape(segment)
		if segment == "." || segment == ".." {
			escaped = strings.ReplaceAll(segment, ".", "%2E") // these mean something in a path
		}
		b.WriteByte('/')
		b.WriteString(escaped)
	}
	return b.String(), nil
}

func isJSON(h http.Header) bool {
	kind := mediaType(first(h, "Content-Type"))
	return kind == "application/json" || kind == problemType
}

func mediaType(contentType string) string {
	if contentType == "application/json" {
		return contentType
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

// since gives a time as the API takes it.
func since(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
