// Package apitest holds answers of the HTTP API against its OpenAPI document,
// in tests. It is strict: a status, media type, header or member that the
// document does not have is as wrong as a missing one.
package apitest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Document checks answers against one OpenAPI document. It may be used by many
// goroutines at once.
type Document struct {
	t          testing.TB
	paths      []path              // those with fewer parameters first
	any        map[string]response // by status: what any request can get
	deliveries []response          // what receivers get
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

// alsoAt is the member of a path for another path where the same is found, which
// linters would not take as one of its own.
const alsoAt = "x-also-at"

// parsed keeps what was made of each document: func() (T, error) by the digest of its text.
var parsed sync.Map

// parse reads a document, once for each text.
func parse[T any](t testing.TB, text []byte, build func(text []byte) (T, error)) T {
	t.Helper()
	once := sync.OnceValues(func() (T, error) { return build(text) })
	load, _ := parsed.LoadOrStore(sha256.Sum256(text), once)
	made, err := load.(func() (T, error))()
	if err != nil {
		t.Fatalf("the document cannot be used: %v", err)
	}
	return made
}

// builder reads the parts of a document. It goes on after an error.
type builder struct {
	root     any
	compiler *jsonschema.Compiler
	err      error // the first
}

// home is the address under which the compiler knows the document.
const home = "https://apitest.invalid/openapi"

func build(text []byte) (*Document, error) {
	b, err := load(text)
	if err != nil {
		return nil, err
	}
	d := b.document()
	return d, b.err
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

func (b *builder) document() *Document {
	d := &Document{any: b.responses("/" + anyRequest)}
	for template, item := range b.members("/paths") {
		p := path{template, map[string]operation{}}
		for method := range item.(map[string]any) {
			if name := strings.ToUpper(method); slices.Contains(methods, name) {
				p.operations[name] = b.responses("/paths/" + escape(template) + "/" + method + "/responses")
			}
		}
		d.paths = append(d.paths, p)
		if also, ok := item.(map[string]any)[alsoAt].(string); ok {
			d.paths = append(d.paths, path{also, p.operations})
		}
	}
	for name := range b.members("/webhooks") {
		d.deliveries = append(d.deliveries, b.delivery("/webhooks/"+escape(name)+"/post"))
	}
	slices.SortFunc(d.paths, func(a, b path) int { return strings.Count(a.template, "{") - strings.Count(b.template, "{") })
	return d
}

var methods = []string{
	http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodHead,
	http.MethodPatch, http.MethodTrace,
}

func (b *builder) responses(at string) operation {
	op := operation{}
	for status := range b.members(at) {
		op[status] = b.response(b.follow(at + "/" + status))
	}
	return op
}

func (b *builder) response(at string) response {
	res := response{headers: map[string]header{}, content: b.content(at)}
	for name := range b.members(at + "/headers") {
		head := b.follow(at + "/headers/" + escape(name))
		required, _ := b.at(head + "/required").(bool)
		kind, _ := b.at(head + "/schema/type").(string)
		res.headers[http.CanonicalHeaderKey(name)] = header{required, kind == "integer", b.schema(head + "/schema")}
	}
	return res
}

func (b *builder) content(at string) map[string]*jsonschema.Schema {
	content := map[string]*jsonschema.Schema{}
	for media := range b.members(at + "/content") {
		content[media] = b.schema(at + "/content/" + escape(media) + "/schema")
	}
	return content
}

// schema compiles the schema at a place, nil if there is none.
func (b *builder) schema(at string) *jsonschema.Schema {
	if b.at(at) == nil {
		return nil
	}
	schema, err := b.compiler.Compile(home + "#" + (&url.URL{Fragment: at}).EscapedFragment())
	if err != nil {
		b.fail("%s: %w", at, err)
	}
	return schema
}

func (b *builder) fail(format string, args ...any) {
	b.err = cmp.Or(b.err, fmt.Errorf(format, args...))
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
			value = v[unescape.Replace(token)]
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

var escapes, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")

func escape(token string) string { return escapes.Replace(token) }

// response gives what the document says of a status of the answer to a request. Where several paths match, the one with
// fewer parameters wins.
func (d *Document) response(method, escapedPath, status string) (res response, ok bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	known := false
	for _, p := range d.paths {
		if !matches(p.template, escapedPath) {
			continue
		}
		known = true
		op, has := p.operations[method]
		if !has {
			break
		}
		if res, ok = op[status]; !ok && status != "404" && status != "405" {
			res, ok = d.any[status]
		}
		return res, ok
	}
	if status == "404" && known || status == "405" && !known {
		return response{}, false
	}
	res, ok = d.any[status]
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
