// Package apitest holds answers of the HTTP API against its OpenAPI document,
// in tests. It is strict: a status, media type, header or member that the
// document does not have is as wrong as a missing one.
package apitest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// document is an OpenAPI document, ready to check against.
type document struct {
	paths      []path              // those with fewer parameters first
	any        map[string]response // by status: what any request can get
	deliveries []delivery          // what receivers get
}

// path is a path with its operations.
type path struct {
	template   string
	operations map[string]operation // by method
}

// operation maps a status to the response that the document describes.
type operation map[string]response

type response struct {
	headers map[string]header             // by canonical name
	content map[string]*jsonschema.Schema // by media type; nil schema: any bytes
}

type header struct {
	required bool
	number   bool // an integer, not text
	schema   *jsonschema.Schema
}

// anyRequest is the document's member for what any request can get, whatever
// its path and method.
const anyRequest = "x-any-request"

// parsed keeps what was made of each document: func() (*document, error) by the
// digest of its text.
var parsed sync.Map

// parse reads a document, once for each text.
func parse(text []byte) (*document, error) {
	once := sync.OnceValues(func() (*document, error) { return build(text) })
	load, _ := parsed.LoadOrStore(sha256.Sum256(text), once)
	return load.(func() (*document, error))()
}

// builder reads the parts of a document.
type builder struct {
	root     any
	compiler *jsonschema.Compiler
}

// home is the address under which the compiler knows the document.
const home = "https://apitest.invalid/openapi"

func build(text []byte) (*document, error) {
	b, err := load(text)
	if err != nil {
		return nil, err
	}
	return b.document()
}

// load reads a document in YAML.
func load(text []byte) (*builder, error) {
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	b := &builder{compiler: jsonschema.NewCompiler()}
	if b.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain)); err != nil {
		return nil, err
	}
	b.compiler.AssertFormat()
	if err := b.compiler.AddResource(home, b.root); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *builder) document() (*document, error) {
	d := &document{}
	var err error
	if d.any, err = b.responses("/" + anyRequest); err != nil {
		return nil, err
	}
	for template, item := range b.members("/paths") {
		p := path{template, map[string]operation{}}
		at := "/paths/" + escape(template)
		for method := range item.(map[string]any) {
			name := strings.ToUpper(method)
			if !slices.Contains(methods, name) {
				continue
			}
			if p.operations[name], err = b.responses(at + "/" + method + "/responses"); err != nil {
				return nil, err
			}
		}
		d.paths = append(d.paths, p)
	}
	for name := range b.members("/webhooks") {
		one, err := b.delivery("/webhooks/" + escape(name) + "/post")
		if err != nil {
			return nil, err
		}
		d.deliveries = append(d.deliveries, one)
	}
	slices.SortFunc(d.paths, func(a, b path) int { return strings.Count(a.template, "{") - strings.Count(b.template, "{") })
	return d, nil
}

var methods = []string{
	http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead,
	http.MethodPatch, http.MethodTrace,
}

func (b *builder) responses(at string) (operation, error) {
	op := operation{}
	for status := range b.members(at) {
		res, err := b.response(b.follow(at + "/" + status))
		if err != nil {
			return nil, err
		}
		op[status] = res
	}
	return op, nil
}

func (b *builder) response(at string) (response, error) {
	res := response{headers: map[string]header{}}
	for name := range b.members(at + "/headers") {
		head := b.follow(at + "/headers/" + escape(name))
		schema, err := b.schema(head + "/schema")
		if err != nil {
			return response{}, err
		}
		required, _ := b.at(head + "/required").(bool)
		kind, _ := b.at(head + "/schema/type").(string)
		res.headers[http.CanonicalHeaderKey(name)] = header{required, kind == "integer", schema}
	}
	var err error
	res.content, err = b.content(at)
	return res, err
}

func (b *builder) content(at string) (map[string]*jsonschema.Schema, error) {
	content := map[string]*jsonschema.Schema{}
	for media := range b.members(at + "/content") {
		schema, err := b.schema(at + "/content/" + escape(media) + "/schema")
		if err != nil {
			return nil, err
		}
		content[media] = schema
	}
	return content, nil
}

// schema compiles the schema at a place, nil if there is none.
func (b *builder) schema(at string) (*jsonschema.Schema, error) {
	if b.at(at) == nil {
		return nil, nil
	}
	schema, err := b.compiler.Compile(home + "#" + (&url.URL{Fragment: at}).EscapedFragment())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return schema, nil
}

// follow gives the place that a $ref at a place leads to, or the place itself.
func (b *builder) follow(at string) string {
	for {
		ref, ok := b.members(at)["$ref"].(string)
		if !ok {
			return at
		}
		at = strings.TrimPrefix(ref, "#")
	}
}

func (b *builder) members(at string) map[string]any {
	members, _ := b.at(at).(map[string]any)
	return members
}

// at gives the value that a JSON Pointer leads to, nil if there is none.
func (b *builder) at(pointer string) any {
	value := b.root
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		switch v := value.(type) {
		case map[string]any:
			value = v[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

func escape(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}

// find gives the described responses for a request. Where several paths match,
// the one with fewer parameters wins.
func (d *document) find(method, escapedPath string) found {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	f := found{}
	for _, p := range d.paths {
		if !matches(p.template, escapedPath) {
			continue
		}
		f.path = true
		if op, ok := p.operations[method]; ok {
			f.operation = op
			return f
		}
	}
	return f
}

// found is what the document has for a request.
type found struct {
	path      bool
	operation operation // nil: the path does not have the method
}

// response gives what the document says of a status.
func (d *document) response(f found, status string) (response, bool) {
	if res, ok := f.operation[status]; ok {
		return res, true
	}
	if status == "404" && f.path || status == "405" && (!f.path || f.operation != nil) {
		return response{}, false
	}
	res, ok := d.any[status]
	return res, ok
}

// matches reports whether a path is of the form of a template; a parameter is
// one segment that is not empty.
func matches(template, escapedPath string) bool {
	want, have := strings.Split(template, "/"), strings.Split(escapedPath, "/")
	if len(want) != len(have) {
		return false
	}
	for i, segment := range want {
		if strings.HasPrefix(segment, "{") && have[i] != "" {
			continue
		}
		if segment != have[i] {
			return false
		}
	}
	return true
}
