// Package apitest compares responses, webhook deliveries and event streams with the OpenAPI and AsyncAPI documents. An undocumented
// status, media type, header or member is an error.
package apitest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI or AsyncAPI document. It is safe for concurrent use.
type Document struct {
	t testing.TB
	*document
}

// New reads a document in YAML. The same text is parsed only once per process.
func New(t testing.TB, text []byte) *Document {
	t.Helper()
	load, _ := parsed.LoadOrStore(sha256.Sum256(text), sync.OnceValues(func() (*document, error) { return parseDocument(text) }))
	d, err := load.(func() (*document, error))()
	if err != nil {
		t.Fatalf("cannot read the document: %v", err)
	}
	return &Document{t, d}
}

type document struct {
	root     object
	compiled sync.Map   // *jsonschema.Schema by JSON Pointer
	mu       sync.Mutex // protects compiler
	compiler *jsonschema.Compiler
}

const (
	home       = "https://apitest.invalid/document" // the schema compiler needs a URL for the document; nothing requests it
	anyRequest = "/.any-request"                    // path for the responses of x-any-request
)

var parsed sync.Map

func parseDocument(text []byte) (*document, error) {
	d := &document{compiler: jsonschema.NewCompiler()}
	if err := yaml.Unmarshal(text, &d.root); err != nil {
		return nil, err
	}
	d.simplify()
	plain, err := json.Marshal(d.root)
	if err != nil {
		return nil, err
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	d.compiler.AssertFormat()
	return d, errors.Join(err, json.Unmarshal(plain, &d.root), d.compiler.AddResource(home, root))
}

func (d *document) simplify() {
	d.moveRefs(d.root)
	paths := as[object](d.root["paths"])
	for _, item := range paths {
		if other := as[string](as[object](item)["x-also-at"]); other != "" {
			paths[other] = item
		}
	}
	if of, ok := d.root["x-any-request"]; ok {
		paths[anyRequest] = object{"get": object{"responses": of}}
	}
}

// moveRefs moves a $ref that has siblings into allOf, because `flat` would ignore the siblings. It also inlines parameters and request
// bodies.
func (d *document) moveRefs(value any) any {
	switch value := value.(type) {
	case object:
		ref := as[string](value["$ref"])
		switch {
		case strings.HasPrefix(ref, "#/components/parameters/") || strings.HasPrefix(ref, "#/components/requestBodies/"):
			return d.moveRefs(d.find(ref))
		case ref != "" && len(value) > 1:
			value["allOf"] = append(as[[]any](value["allOf"]), object{"$ref": ref})
			delete(value, "$ref")
		}
		for name, member := range value {
			value[name] = d.moveRefs(member)
		}
	case []any:
		for i, element := range value {
			value[i] = d.moveRefs(element)
		}
	}
	return value
}

func (d *document) find(ref string) any {
	var value any = d.root
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		value = as[object](value)[name]
	}
	return value
}

// schema returns the compiled schema at a JSON Pointer such as "#/components/...". It panics if there is none.
func (d *document) schema(pointer string) *jsonschema.Schema {
	if known, ok := d.compiled.Load(pointer); ok {
		return known.(*jsonschema.Schema)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.compiler.MustCompile(home + pointer)
	d.compiled.Store(pointer, s)
	return s
}

type place struct {
	pointer string
	object  object
}

// child returns a member of an object, and follows its $ref.
func (d *document) child(of place, name string) place {
	member := as[object](of.object[name])
	if ref := as[string](member["$ref"]); ref != "" {
		return place{ref, as[object](d.find(ref))}
	}
	return place{of.pointer + "/" + escape(name), member}
}

func (d *document) operation(of, name, method string) place {
	return d.child(d.child(d.child(place{"#", d.root}, of), name), method)
}

func (d *document) checkBody(kind place, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the body cannot be decoded: %w", err)
	}
	return d.schema(kind.pointer + "/schema").Validate(value)
}

func (d *document) checkHeader(of place, name string, h http.Header) error {
	lines := h.Values(name)
	if len(lines) == 0 {
		if of.object["required"] == true {
			return fmt.Errorf("the header %s is missing", name)
		}
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(parse(d.flat(of.object["schema"]), strings.Join(lines, ", "))))
	if err == nil {
		err = d.schema(of.pointer + "/schema").Validate(value)
	}
	if err != nil {
		return fmt.Errorf("the header %s is wrong: %w", name, err)
	}
	return nil
}
