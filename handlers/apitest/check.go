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
	want := d.response(method, escapedPath, strconv.Itoa(res.StatusCode))
	if want.value == nil {
		return errors.New("the status is not documented")
	}
	headers := map[string]node{}
	for name, head := range want.in("headers").members() {
		headers[http.CanonicalHeaderKey(name)] = head
	}
	return errors.Join(checkHeaders(headers, res.Header), checkBody(want.in("content"), method, res, body))
}

// ofHTTP are headers that belong to the protocol, not to the API.
var ofHTTP = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Server", "Trailer", "Transfer-Encoding"}

// checkHeaders holds headers against those that are documented, by canonical name.
func checkHeaders(documented map[string]node, sent http.Header) error {
	var wrong []error
	for name, head := range documented {
		lines := sent.Values(name)
		switch {
		case len(lines) > 0:
			if err := checkHeader(head.in("schema"), strings.Join(lines, ", ")); err != nil {
				wrong = append(wrong, fmt.Errorf("the header %s: %w", name, err))
			}
		case head.in("required").value == true:
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		}
	}
	for name := range sent {
		if _, ok := documented[name]; !ok && !slices.Contains(ofHTTP, name) && !ofCORS(name, sent) {
			wrong = append(wrong, fmt.Errorf("the header %s is not documented", name))
		}
	}
	return errors.Join(wrong...)
}

// ofCORS reports whether a header belongs to the CORS protocol, which any answer
// may take part in.
func ofCORS(name string, all http.Header) bool {
	return strings.HasPrefix(name, "Access-Control-") || name == "Vary" && all.Get(name) == "Origin"
}

func checkHeader(schema node, value string) error {
	if schema.text("type") != "integer" {
		return schema.validate(value)
	}
	if _, err := strconv.Atoi(value); err != nil {
		return err
	}
	return schema.validate(json.Number(value))
}

// isJSON reports whether a media type is JSON.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// checkBody holds a body against the content that is documented.
func checkBody(content node, method string, res *http.Response, body []byte) error {
	if content.value == nil {
		if len(body) > 0 {
			return errors.New("the answer has a body, and none is documented")
		}
		return nil
	}
	media := res.Header.Get("Content-Type")
	kind := content.in(media)
	if kind.value == nil {
		kind = content.in("*/*")
	}
	schema := kind.in("schema")
	switch {
	case kind.value == nil:
		return fmt.Errorf("the media type %q is not documented", media)
	case method == http.MethodHead && len(body) > 0:
		return errors.New("the answer to HEAD has a body")
	case method == http.MethodHead, !isJSON(media), schema.value == nil:
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return errors.Join(schema.validate(value), checkStatus(res.StatusCode, value))
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
