package apitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/parameters"
	"github.com/pb33f/libopenapi-validator/requests"
	"github.com/pb33f/libopenapi-validator/responses"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// Check fails the test if a response is not documented like this.
func (d *Document) Check(t testing.TB, r *http.Request, res *http.Response, body []byte) {
	t.Helper()
	if err := d.Verify(r.Method, r.URL.EscapedPath(), res, body); err != nil {
		t.Errorf("%s %s answered %d, not as documented: %v\n%.4000s", r.Method, r.URL.EscapedPath(), res.StatusCode, err, body)
	}
}

// Verify returns everything that is wrong with a response. The body of res is not read; body replaces it.
func (d *Document) Verify(method, escapedPath string, res *http.Response, body []byte) error {
	if method == http.MethodOptions && res.StatusCode == http.StatusNoContent { // a preflight
		return nil
	}
	isHead := method == http.MethodHead
	if isHead {
		method = http.MethodGet
	}
	path, err := url.PathUnescape(escapedPath)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &http.Request{Method: method, URL: &url.URL{Path: path, RawPath: escapedPath}}
	status, media := strconv.Itoa(res.StatusCode), res.Header.Get("Content-Type")
	want := d.response(r, status)
	if want == nil {
		return errors.New("the status is not documented")
	}
	documented, kinds := map[string]bool{}, map[string]*v3.MediaType{}
	for name := range want.Headers.FromOldest() {
		documented[http.CanonicalHeaderKey(name)] = true
	}
	maps.Insert(kinds, want.Content.FromOldest())
	kind := cmp.Or(kinds[media], kinds["*/*"])
	wrong := []error{
		undocumented(res.Header, documented),
		joined(responses.ValidateResponseHeaders(r, res, want.Headers, escapedPath, status, d.options)),
	}
	switch {
	case (isHead || len(kinds) == 0) && len(body) > 0:
		wrong = append(wrong, errors.New("the response has a body"))
	case len(kinds) > 0 && kind == nil:
		wrong = append(wrong, fmt.Errorf("the media type %q is not documented", media))
	case !isHead && isJSON(media) && len(body) == 0:
		wrong = append(wrong, errors.New("the body is empty"))
	case !isHead && isJSON(media) && kind.Schema != nil:
		copied := *res
		copied.Body = io.NopCloser(bytes.NewReader(body))
		wrong = append(wrong, checkStatus(res.StatusCode, body), joined(responses.ValidateResponseSchema(&responses.ValidateResponseSchemaInput{
			Request: r, Response: &copied, Schema: kind.Schema.Schema(), Version: 3.1, Options: []config.Option{d.options},
		})))
	}
	return errors.Join(wrong...)
}

// response returns what the document says of a status, nil for nothing. A 404 of x-any-request is for unknown paths only, and a 405 for
// methods that a path lacks. The library's own search is looser: it takes // as /, and GET /v1/jobs/batch as a job's path.
func (d *Document) response(r *http.Request, status string) *v3.Response {
	found, least := "", math.MaxInt // parameters
	for template := range as[object](d.root["paths"]) {
		if n := strings.Count(template, "{"); n < least && matches(template, r.URL.EscapedPath()) {
			found, least = template, n
		}
	}
	item, others := d.model.Paths.PathItems.GetOrZero(found), d.model.Paths.PathItems.GetOrZero(anyRequest)
	var operation *v3.Operation
	if item != nil {
		operation = item.GetOperations().GetOrZero(strings.ToLower(r.Method))
	}
	if operation != nil && operation.Responses.Codes.GetOrZero(status) != nil {
		return operation.Responses.Codes.GetOrZero(status)
	}
	if others == nil || status == "404" && item != nil || status == "405" && (item == nil || operation != nil) {
		return nil
	}
	return others.Get.Responses.Codes.GetOrZero(status)
}

// ofHTTP are headers that belong to the protocol, not to the API.
var ofHTTP = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Server", "Trailer", "Transfer-Encoding"}

// undocumented returns an error for each header that is not documented, except those of HTTP and CORS.
func undocumented(sent http.Header, documented map[string]bool) error {
	var wrong []error
	for name := range sent {
		ofCORS := strings.HasPrefix(name, "Access-Control-") || name == "Vary" && sent.Get(name) == "Origin"
		if !documented[name] && !ofCORS && !slices.Contains(ofHTTP, name) {
			wrong = append(wrong, fmt.Errorf("the header %s is not documented", name))
		}
	}
	return errors.Join(wrong...)
}

// isJSON reports whether a media type is JSON.
func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// checkStatus checks that a problem document has the status of its response (RFC 9457, section 3.1.2).
func checkStatus(status int, body []byte) error {
	var problem struct{ Status any }
	_ = json.Unmarshal(body, &problem) // the schema finds what is wrong
	if own, ok := problem.Status.(float64); ok && status >= 400 && int(own) != status {
		return fmt.Errorf("the problem document says status %v", own)
	}
	return nil
}

// Transport checks every response that passes through it, and fails the document's test. It skips the bodies of event streams,
// and responses that break off.
func (d *Document) Transport(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(r)
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
			d.Check(d.t, r, res, body)
		}
		return res, nil
	})
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip sends the request on.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// CheckDelivery fails the test if a request to a receiver is not documented like this.
func (d *Document) CheckDelivery(t testing.TB, h http.Header, body []byte) {
	t.Helper()
	if err := d.VerifyDelivery(h, body); err != nil {
		t.Errorf("a delivery is not as documented: %v\n%v\n%.4000s", err, h, body)
	}
}

// VerifyDelivery returns everything that is wrong with a request to a receiver. The attributes of a CloudEvent are in the body
// in structured mode, and all in headers in binary mode.
func (d *Document) VerifyDelivery(h http.Header, body []byte) error {
	h = h.Clone()
	h.Del("Accept-Encoding")
	var event struct{ Type string }
	structured := h.Get("Content-Type") == "application/cloudevents+json"
	if event.Type = h.Get("Ce-Type"); structured {
		if err := json.Unmarshal(body, &event); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	hook := d.hook(event.Type)
	if hook == nil {
		return fmt.Errorf("no delivery of the event %q is documented", event.Type)
	}
	documented := map[string]bool{}
	var wrong []error
	for _, p := range hook.Post.Parameters {
		name := http.CanonicalHeaderKey(p.Name)
		documented[name] = !structured || !strings.HasPrefix(name, "Ce-")
		if strings.HasPrefix(name, "Ce-") && documented[name] && h.Get(name) == "" {
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		}
	}
	for name, lines := range h {
		if len(lines) > 1 {
			wrong = append(wrong, fmt.Errorf("the header %s comes twice", name))
		}
	}
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Header: h, Body: io.NopCloser(bytes.NewReader(body))}
	return errors.Join(append(wrong, undocumented(h, documented),
		joined(parameters.NewParameterValidator(d.model, d.options).ValidateHeaderParamsWithPathItem(r, hook, "/")),
		joined(requests.NewRequestBodyValidator(d.model, d.options).ValidateRequestBodyWithPathItem(r, hook, "/")))...)
}

// hook returns the webhook whose header ce-type allows an event, nil if there is none.
func (d *Document) hook(event string) *v3.PathItem {
	for name, hook := range as[object](d.root["webhooks"]) {
		for _, parameter := range as[[]any](as[object](as[object](hook)["post"])["parameters"]) {
			p := as[object](parameter)
			if p["name"] == "ce-type" && slices.Contains(as[[]any](d.flat(p["schema"])["enum"]), any(event)) {
				return d.model.Webhooks.GetOrZero(name)
			}
		}
	}
	return nil
}
