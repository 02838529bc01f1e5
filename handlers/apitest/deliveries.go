package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
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

// delivery reads what the document says of requests to receivers.
func (b *builder) delivery(at string) response {
	d := response{headers: map[string]header{}, content: b.content(at + "/requestBody")}
	parameters, _ := b.at(at + "/parameters").([]any)
	for i := range parameters {
		parameter := b.follow(at + "/parameters/" + strconv.Itoa(i))
		name, _ := b.at(parameter + "/name").(string)
		required, _ := b.at(parameter + "/required").(bool)
		d.headers[http.CanonicalHeaderKey(name)] = header{required: required, schema: b.schema(parameter + "/schema")}
	}
	return d
}

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
	i := slices.IndexFunc(d.deliveries, func(one response) bool {
		types := one.headers[typeHeader].schema
		return types != nil && types.Validate(event) == nil
	})
	if i < 0 {
		return fmt.Errorf("no delivery of the event %q is documented", event)
	}
	want := response{maps.Clone(d.deliveries[i].headers), d.deliveries[i].content}
	for name, head := range d.deliveries[i].headers {
		if !strings.HasPrefix(name, attributePrefix) {
			continue
		}
		if head.required = true; media == mimeStructured {
			delete(want.headers, name) // attributes are in the body
			continue
		}
		want.headers[name] = head
	}
	h = h.Clone()
	h.Del("Accept-Encoding")
	for name, lines := range h {
		if len(lines) > 1 {
			return fmt.Errorf("the header %s comes twice", name)
		}
	}
	res := &http.Response{Header: h}
	return errors.Join(append(checkHeaders(want, res), checkBody(want, http.MethodPost, res, body))...)
}
