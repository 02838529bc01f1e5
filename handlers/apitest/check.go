package apitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// Check fails the test if the document does not describe the response.
func (d *Document) Check(t testing.TB, r *http.Request, res *http.Response, body []byte) {
	t.Helper()
	if err := d.Verify(r.Method, r.URL.EscapedPath(), res, body); err != nil {
		t.Errorf("%s %s answered %d, not as documented: %v\n%.4000s", r.Method, r.URL.EscapedPath(), res.StatusCode, err, body)
	}
}

// Verify returns all differences between a response and the document. Verify does not read res.Body; body is the response's body.
func (d *Document) Verify(method, escapedPath string, res *http.Response, body []byte) error {
	if method == http.MethodOptions && res.StatusCode == http.StatusNoContent { // a preflight
		return nil
	}
	isHead := method == http.MethodHead
	if isHead {
		method = http.MethodGet
	}
	want := d.response(method, escapedPath, strconv.Itoa(res.StatusCode))
	if want.object == nil {
		return errors.New("the status is not documented")
	}
	media, documented, wrong := res.Header.Get("Content-Type"), map[string]bool{}, []error(nil)
	headers, kinds := d.child(want, "headers"), d.child(want, "content")
	for name := range headers.object {
		documented[http.CanonicalHeaderKey(name)] = true
		wrong = append(wrong, d.checkHeader(d.child(headers, name), name, res.Header))
	}
	wrong = append(wrong, undocumented(res.Header, documented))
	kind := d.child(kinds, media)
	if kind.object == nil {
		kind = d.child(kinds, "*/*")
	}
	switch {
	case (isHead || len(kinds.object) == 0) && len(body) > 0:
		wrong = append(wrong, errors.New("the response must not have a body"))
	case len(kinds.object) > 0 && kind.object == nil:
		wrong = append(wrong, fmt.Errorf("the media type %q is not documented", media))
	case !isHead && isJSON(media) && len(body) == 0:
		wrong = append(wrong, errors.New("the body is empty"))
	case !isHead && isJSON(media) && kind.object["schema"] != nil:
		wrong = append(wrong, checkStatus(res.StatusCode, body), d.checkBody(kind, body))
	}
	return errors.Join(wrong...)
}

// response returns the place in the document that describes a status, or an empty place. The extension x-any-request documents responses
// that any request may get. In this extension, status 404 is for unknown paths, and 405 for unsupported methods of known paths.
func (d *Document) response(method, escapedPath, status string) place {
	found, least := "", math.MaxInt // the matching path with the fewest parameters wins
	for template := range as[object](d.root["paths"]) {
		if n := strings.Count(template, "{"); n < least && matches(template, escapedPath) {
			found, least = template, n
		}
	}
	operation := d.operation("paths", found, strings.ToLower(method))
	if of := d.child(d.child(operation, "responses"), status); of.object != nil {
		return of
	}
	if status == "404" && found != "" || status == "405" && (found == "" || operation.object != nil) {
		return place{}
	}
	return d.child(d.child(d.operation("paths", anyRequest, "get"), "responses"), status)
}

// ofHTTP lists headers that the document need not list, because HTTP itself needs them.
var ofHTTP = []string{"Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Server", "Trailer", "Transfer-Encoding"}

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

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// checkStatus checks that a problem document has the status of its response (RFC 9457, section 3.1.2).
func checkStatus(status int, body []byte) error {
	var problem struct{ Status any }
	_ = json.Unmarshal(body, &problem) // the schema check reports invalid JSON
	if own, ok := problem.Status.(float64); ok && status >= 400 && int(own) != status {
		return fmt.Errorf("the problem document has status %v, but the response has %d", own, status)
	}
	return nil
}

// Transport returns a RoundTripper that fails the test if a response differs from the document. It does not check the bodies of event
// streams and truncated responses.
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

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// CheckDelivery fails the test if the document does not describe the webhook request.
func (d *Document) CheckDelivery(t testing.TB, h http.Header, body []byte) {
	t.Helper()
	if err := d.VerifyDelivery(h, body); err != nil {
		t.Errorf("a delivery is not as documented: %v\n%v\n%.4000s", err, h, body)
	}
}

// VerifyDelivery returns all differences between a webhook request and the document. CloudEvent attributes are in the body in structured
// mode and in headers in binary mode.
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
	post := d.hook(event.Type)
	if post.object == nil {
		return fmt.Errorf("no delivery of the event %q is documented", event.Type)
	}
	documented := map[string]bool{}
	var wrong []error
	for i, of := range as[[]any](post.object["parameters"]) {
		p := place{fmt.Sprint(post.pointer, "/parameters/", i), as[object](of)}
		name := http.CanonicalHeaderKey(as[string](p.object["name"]))
		documented[name] = !structured || !strings.HasPrefix(name, "Ce-")
		if strings.HasPrefix(name, "Ce-") && documented[name] && h.Get(name) == "" {
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		}
		wrong = append(wrong, d.checkHeader(p, name, h))
	}
	for name, lines := range h {
		if len(lines) > 1 {
			wrong = append(wrong, fmt.Errorf("the header %s appears twice", name))
		}
	}
	kind := d.child(d.child(d.child(post, "requestBody"), "content"), h.Get("Content-Type"))
	if kind.object == nil {
		wrong = append(wrong, fmt.Errorf("the media type %q is not documented", h.Get("Content-Type")))
	} else {
		wrong = append(wrong, d.checkBody(kind, body))
	}
	return errors.Join(append(wrong, undocumented(h, documented))...)
}

// hook finds the documented webhook with a ce-type header that allows the event.
func (d *Document) hook(event string) place {
	for name, hook := range as[object](d.root["webhooks"]) {
		for _, parameter := range as[[]any](as[object](as[object](hook)["post"])["parameters"]) {
			p := as[object](parameter)
			if p["name"] == "ce-type" && slices.Contains(as[[]any](d.flat(p["schema"])["enum"]), any(event)) {
				return d.operation("webhooks", name, "post")
			}
		}
	}
	return place{}
}
