package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The names that decide how a delivery is read.
const (
	typeHeader      = "Ce-Type"
	attributePrefix = "Ce-"
	mimeStructured  = "application/cloudevents+json"
)

// CheckDelivery fails the test if a request that a receiver got is not as the
// document says. The body is what was read of it.
func (d *Document) CheckDelivery(t testing.TB, h http.Header, body []byte) {
	t.Helper()
	if err := d.VerifyDelivery(h, body); err != nil {
		t.Errorf("a delivery is not as documented: %v\n%v\n%s", err, h, clip(body))
	}
}

// VerifyDelivery gives all that is wrong with a delivery, nil if nothing is.
func (d *Document) VerifyDelivery(h http.Header, body []byte) error {
	media := h.Get("Content-Type")
	if !isJSON(media) {
		return fmt.Errorf("the media type %q is not JSON", media)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	event := h.Get(typeHeader)
	if media == mimeStructured {
		members, _ := value.(map[string]any)
		event, _ = members["type"].(string)
	}
	post, headers := d.delivery(event)
	if post.value == nil {
		return fmt.Errorf("no delivery of the event %q is documented", event)
	}
	h = h.Clone()
	h.Del("Accept-Encoding")
	var wrong []error
	for name := range headers {
		switch {
		case !strings.HasPrefix(name, attributePrefix):
		case media == mimeStructured:
			delete(headers, name) // attributes are in the body
		case len(h.Values(name)) == 0:
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		}
	}
	for name, lines := range h {
		if len(lines) > 1 {
			return fmt.Errorf("the header %s comes twice", name)
		}
	}
	content := post.in("requestBody", "content")
	wrong = append(wrong, checkHeaders(headers, h), checkBody(content, http.MethodPost, &http.Response{Header: h}, body))
	return errors.Join(wrong...)
}

// delivery gives what the document says of requests about an event, and of their headers.
func (d *Document) delivery(event string) (post node, headers map[string]node) {
	for _, hook := range d.in("webhooks").members() {
		headers = map[string]node{}
		for _, parameter := range hook.in("post", "parameters").members() {
			headers[http.CanonicalHeaderKey(parameter.text("name"))] = parameter
		}
		if of, ok := headers[typeHeader]; ok && of.in("schema").validate(event) == nil {
			return hook.in("post"), headers
		}
	}
	return node{}, nil
}
