package apitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// New reads an OpenAPI document. Reading the same text again costs nothing.
func New(t testing.TB, openAPI []byte) *Document {
	t.Helper()
	d := *parse(t, openAPI, build)
	d.t = t
	return &d
}

// Check fails the test if an answer to a request is not as the document says.
// The body is what was read of it.
func (d *Document) Check(t testing.TB, r *http.Request, res *http.Response, body []byte) {
	t.Helper()
	if err := d.Verify(r.Method, r.URL.EscapedPath(), res, body); err != nil {
		t.Errorf("%s %s answered %d, not as documented: %v\n%s", r.Method, r.URL.EscapedPath(), res.StatusCode, err, clip(body))
	}
}

// Verify gives all that is wrong with an answer, nil if nothing is. HEAD is
// checked as GET without a body.
func (d *Document) Verify(method, escapedPath string, res *http.Response, body []byte) error {
	if method == http.MethodOptions && res.StatusCode == http.StatusNoContent { // of a browser, before a page's request
		return nil
	}
	want, ok := d.response(method, escapedPath, strconv.Itoa(res.StatusCode))
	if !ok {
		return errors.New("the status is not documented")
	}
	return errors.Join(append(checkHeaders(want, res), checkBody(want, method, res, body))...)
}

// ofHTTP are headers that belong to the protocol, not to the API.
var ofHTTP = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Server", "Trailer", "Transfer-Encoding"}

func checkHeaders(want response, res *http.Response) []error {
	var wrong []error
	for name, head := range want.headers {
		lines := res.Header.Values(name)
		if len(lines) == 0 {
			if head.required {
				wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
			}
			continue
		}
		if err := head.check(strings.Join(lines, ", ")); err != nil {
			wrong = append(wrong, fmt.Errorf("the header %s: %w", name, err))
		}
	}
	for name := range res.Header {
		if _, ok := want.headers[name]; !ok && !slices.Contains(ofHTTP, name) && !ofCORS(name, res.Header) {
			wrong = append(wrong, fmt.Errorf("the header %s is not documented", name))
		}
	}
	return wrong
}

// ofCORS reports whether a header belongs to the CORS protocol, which any answer
// may take part in.
func ofCORS(name string, all http.Header) bool {
	return strings.HasPrefix(name, "Access-Control-") || name == "Vary" && all.Get(name) == "Origin"
}

func (h header) check(value string) error {
	if h.schema == nil {
		return nil
	}
	if !h.number {
		return h.schema.Validate(value)
	}
	if _, err := strconv.Atoi(value); err != nil {
		return err
	}
	return h.schema.Validate(json.Number(value))
}

// isJSON reports whether a media type is JSON.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func checkBody(want response, method string, res *http.Response, body []byte) error {
	if len(want.content) == 0 {
		if len(body) > 0 {
			return errors.New("the answer has a body, and none is documented")
		}
		return nil
	}
	media := res.Header.Get("Content-Type")
	schema, ok := want.content[media]
	if !ok {
		schema, ok = want.content["*/*"]
	}
	switch {
	case !ok:
		return fmt.Errorf("the media type %q is not documented", media)
	case method == http.MethodHead && len(body) > 0:
		return errors.New("the answer to HEAD has a body")
	case method == http.MethodHead, !isJSON(media), schema == nil:
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return errors.Join(schema.Validate(value), checkStatus(res.StatusCode, value))
}

// checkStatus holds the status of a problem document against the answer's, if
// that is the problem (RFC 9457, section 3.1.2).
func checkStatus(status int, body any) error {
	members, _ := body.(map[string]any)
	own, ok := members["status"].(json.Number)
	if ok && status >= http.StatusBadRequest && own.String() != strconv.Itoa(status) {
		return fmt.Errorf("the problem document says status %s", own)
	}
	return nil
}

// clip bounds what is shown of a body.
func clip(body []byte) []byte {
	const limit = 4000
	return body[:min(limit, len(body))]
}

// Transport checks every answer that comes through it, and fails the test that
// the document was made for. The bodies of event streams pass through
// unchecked, and so does an answer that breaks off.
func (d *Document) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{d, next}
}

type transport struct {
	document *Document
	next     http.RoundTripper
}

// RoundTrip sends the request on.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	var body []byte
	if res.Header.Get("Content-Type") != "text/event-stream" {
		body, err = io.ReadAll(res.Body)
		again := io.MultiReader(bytes.NewReader(body), iotest.ErrReader(cmp.Or(err, io.EOF)))
		res.Body = struct {
			io.Reader
			io.Closer
		}{again, res.Body}
	}
	if err == nil {
		t.document.Check(t.document.t, r, res, body)
	}
	return res, nil
}
