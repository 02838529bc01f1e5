// Package apitest checks HTTP responses, webhook deliveries and event streams against their documents, in tests. It is
// strict: an undocumented status, media type, header or member is an error.
package apitest

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi-validator/config"
	liberrors "github.com/pb33f/libopenapi-validator/errors"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"go.yaml.in/yaml/v3"
)

// Document is an OpenAPI document. It is safe for concurrent use.
type Document struct {
	t testing.TB
	*openAPI
}

// openAPI is a parsed document.
type openAPI struct {
	mu      sync.Mutex // protects model: the library builds it when it is read
	model   *v3.Document
	options config.Option // with one cache of compiled schemas
}

// anyRequest is the path under which the model has the responses of x-any-request.
const anyRequest = "/.any-request"

// parsed has a func() (T, error) for the digest of each document.
var parsed sync.Map

// parseOnce parses each text once per process.
func parseOnce[T any](t testing.TB, text []byte, parse func([]byte) (T, error)) T {
	t.Helper()
	load, _ := parsed.LoadOrStore(sha256.Sum256(text), sync.OnceValues(func() (T, error) { return parse(text) }))
	made, err := load.(func() (T, error))()
	if err != nil {
		t.Fatalf("cannot read the document: %v", err)
	}
	return made
}

// New reads an OpenAPI document in YAML.
func New(t testing.TB, text []byte) *Document {
	t.Helper()
	return &Document{t, parseOnce(t, text, parseOpenAPI)}
}

func parseOpenAPI(text []byte) (*openAPI, error) {
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	moveRefs(root)
	paths, _ := root["paths"].(map[string]any)
	for _, item := range paths {
		if other, ok := item.(map[string]any)["x-also-at"].(string); ok {
			paths[other] = item
		}
	}
	if of, ok := root["x-any-request"]; ok {
		paths[anyRequest] = map[string]any{"get": map[string]any{"responses": of}}
	}
	plain, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	document, err := libopenapi.NewDocument(plain)
	if err != nil {
		return nil, err
	}
	built, err := document.BuildV3Model()
	if err != nil {
		return nil, err
	}
	return &openAPI{model: &built.Model, options: config.WithExistingOpts(config.NewValidationOptions(config.WithFormatAssertions()))}, nil
}

// moveRefs moves each $ref with siblings into allOf, because the library ignores the siblings.
func moveRefs(value any) {
	switch value := value.(type) {
	case map[string]any:
		if ref, ok := value["$ref"].(string); ok && len(value) > 1 {
			parts, _ := value["allOf"].([]any)
			value["allOf"] = append(parts, map[string]any{"$ref": ref})
			delete(value, "$ref")
		}
		for _, member := range value {
			moveRefs(member)
		}
	case []any:
		for _, element := range value {
			moveRefs(element)
		}
	}
}

// joined returns the findings of the library as one error.
func joined(_ bool, found []*liberrors.ValidationError) error {
	var all []error
	for _, one := range found {
		all = append(all, errors.New(one.Message+": "+one.Reason))
		for _, cause := range one.SchemaValidationErrors {
			all = append(all, errors.New(cause.FieldPath+": "+cause.Reason))
		}
	}
	return errors.Join(all...)
}
