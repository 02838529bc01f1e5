package client

import (
	"bytes"
	"cmp"
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
	id     string // that the answer must have; "" for any
	repeat repetition
	secret bool // the answer has a key or secret: no error shows its body
	raw    bool // the answer may be of any type, not only JSON
	limit  int  // of the answer in bytes; 0: maxAnswer
	settings
}

// repetition says after what a request is sent again.
type repetition int

const (
	anyTime   repetition = iota // it has the same effect as once
	ifRefused                   // an answer says that nothing was done
	never
)

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
	if err := cmp.Or(c.err, r.err); err != nil {
		return nil, err
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
		if ended := c.sleep(ctx, wait); ended != nil {
			// What the last try ended with says more than that the time is over.
			return nil, fmt.Errorf("%w (it was not sent again: %w)", err, ended)
		}
	}
}

// try sends the request once.
func (c *Client) try(ctx context.Context, r *request, try int) (*answer, error) {
	limited := ctx
	if c.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, c.timeout+r.wait)
		defer cancel()
	}
	response, err := c.transport.RoundTrip(c.build(limited, r))
	if err != nil {
		return nil, &NoAnswerError{Method: r.method, Path: r.path, Tries: try, Err: err}
	}
	defer response.Body.Close()
	limit := orDefault(r.limit, maxAnswer)
	body, err := readBody(response, limit)
	// The status is looked at before the body: a body can say anything. That a
	// request was refused is known without the rest of the body.
	success := response.StatusCode >= 200 && response.StatusCode <= 299
	switch {
	case err != nil && (success || ctx.Err() != nil):
		return nil, &NoAnswerError{Method: r.method, Path: r.path, Tries: try, Err: err}
	case response.StatusCode == http.StatusNotModified && r.header["If-None-Match"] != nil:
		return nil, ErrNotModified
	case !success:
		return nil, c.refusal(r, response, body, try)
	case len(body) > limit:
		return nil, unexpected(r, response, body, try, fmt.Sprintf("it has more than %d bytes", limit))
	case !r.raw && !isJSON(response.Header) && response.StatusCode != http.StatusNoContent:
		return nil, unexpected(r, response, body, try, "it is not JSON")
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
	if auth := c.auth(); auth != nil {
		header["Authorization"] = auth
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
		n, err := io.ReadFull(response.Body, body)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return body[:n], err
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
	return r.wrong(&answer{response.StatusCode, response.Header, body, try}, reason)
}

// wrong says that the answer is not ForgeRun's.
func (r *request) wrong(a *answer, reason string) *UnexpectedError {
	err := &UnexpectedError{
		Method: r.method, Path: r.path, Status: a.status, Tries: a.tries, Reason: reason,
		ContentType: first(a.header, "Content-Type"), RequestID: a.requestID(),
	}
	if !r.secret {
		err.Body = a.body[:min(len(a.body), maxExcerpt)]
	}
	return err
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

// identified is what has an id, without which it is not what was asked for.
type identified interface{ identity() string }

// decode reads the answer's body. Members that are not known are ignored, and
// absent ones stay zero, but for the id.
func decode(r *request, a *answer, into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		reason := "its JSON cannot be read"
		if !r.secret {
			reason += ": " + err.Error()
		}
		return r.wrong(a, reason)
	}
	if named, ok := into.(identified); ok {
		return r.checkID(a, named.identity())
	}
	return nil
}

// checkID compares ids without regard to case, since the service takes both and
// answers with one.
func (r *request) checkID(a *answer, id string) error {
	switch {
	case id == "":
		return r.wrong(a, "it has no id")
	case r.id != "" && !strings.EqualFold(id, r.id):
		return r.wrong(a, "it is about another id than was asked for")
	}
	return nil
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
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
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
