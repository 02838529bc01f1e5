package apitest

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// delivery is what the document says of requests to receivers.
type delivery struct {
	headers map[string]header // by canonical name
	content map[string]*jsonschema.Schema
}

// The names that decide how a delivery is read.
const (
	typeHeader      = "Ce-Type"
	attributePrefix = "Ce-"
	mimeStructured  = "application/cloudevents+json"
)

func (b *builder) delivery(at string) delivery {
	d := delivery{headers: map[string]header{}, content: b.content(at + "/requestBody")}
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
	i := slices.IndexFunc(d.deliveries, func(one delivery) bool {
		types := one.headers[typeHeader].schema
		return types != nil && types.Validate(event) == nil
	})
	if i < 0 {
		return fmt.Errorf("no delivery of the event %q is documented", event)
	}
	one := d.deliveries[i]
	schema, ok := one.content[media]
	if !ok {
		return fmt.Errorf("the media type %q is not documented", media)
	}
	return errors.Join(append(one.checkHeaders(h, media), schema.Validate(value))...)
}

// checkHeaders wants the event's attributes in binary mode, and not otherwise.
func (one delivery) checkHeaders(h http.Header, media string) []error {
	var wrong []error
	for name, head := range one.headers {
		attribute := strings.HasPrefix(name, attributePrefix)
		lines := h.Values(name)
		switch {
		case attribute && media == mimeStructured && len(lines) > 0:
			wrong = append(wrong, fmt.Errorf("the header %s does not belong to structured mode", name))
		case len(lines) > 1:
			wrong = append(wrong, fmt.Errorf("the header %s comes twice", name))
		case len(lines) == 1:
			if err := head.check(lines[0]); err != nil {
				wrong = append(wrong, fmt.Errorf("the header %s: %w", name, err))
			}
		case head.required || attribute && media != mimeStructured:
			wrong = append(wrong, fmt.Errorf("the header %s is missing", name))
		}
	}
	for name := range h {
		if _, ok := one.headers[name]; !ok && name != "Accept-Encoding" && !slices.Contains(ofHTTP, name) {
			wrong = append(wrong, fmt.Errorf("the header %s is not documented", name))
		}
	}
	return wrong
}
