// Package apitest holds answers of the HTTP API, requests to receivers and frames of streams against the documents that
// describe them, in tests. It is strict: a status, media type, header or member that the document does not have is as wrong
// as a missing one.
package apitest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"iter"
	"maps"
	"math"
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

// Document is an OpenAPI or AsyncAPI document. It may be used by many goroutines at once.
type Document struct {
	t testing.TB
	*tree
}

// tree is the text of a document.
type tree struct {
	root     any
	mu       sync.Mutex // of compiler
	compiler *jsonschema.Compiler
}

// home is the address under which the compiler knows the document.
const home = "https://apitest.invalid/openapi"

// parsed keeps what was made of each document: func() (*tree, error) by the digest of its text.
var parsed sync.Map

// New reads a document in YAML. Reading the same text again costs nothing.
func New(t testing.TB, text []byte) *Document {
	t.Helper()
	once := sync.OnceValues(func() (*tree, error) { return parse(text) })
	load, _ := parsed.LoadOrStore(sha256.Sum256(text), once)
	made, err := load.(func() (*tree, error))()
	if err != nil {
		t.Fatalf("the document cannot be used: %v", err)
	}
	return &Document{t, made}
}

func parse(text []byte) (*tree, error) {
	var root any
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	d := &tree{compiler: jsonschema.NewCompiler()}
	if d.root, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain)); err != nil {
		return nil, err
	}
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource(home, d.root)
}

// node is a value of the document with its JSON Pointer. The value of what is missing is nil.
type node struct {
	*tree
	at    string
	value any
}

func (d *tree) in(names ...string) node { return node{d, "", d.root}.in(names...) }

// target gives what a reference such as #/components/schemas/Job refers to.
func (d *tree) target(ref string) node {
	names := strings.Split(strings.TrimPrefix(ref, "#/"), "/")
	for i := range names {
		names[i] = unescape.Replace(names[i])
	}
	return d.in(names...)
}

// in gives a member of a member of n, and so on. The members of a reference are those of what it refers to.
func (n node) in(names ...string) node {
	for _, name := range names {
		n = n.follow()
		var value any
		switch parent := n.value.(type) {
		case map[string]any:
			value = parent[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && 0 <= i && i < len(parent) {
				value = parent[i]
			}
		}
		n = node{n.tree, n.at + "/" + escape(name), value}
	}
	return n
}

// follow gives what a reference refers to, or n itself.
func (n node) follow() node {
	for {
		members, _ := n.value.(map[string]any)
		ref, ok := members["$ref"].(string)
		if !ok {
			return n
		}
		n = n.target(ref)
	}
}

// members gives those of an object by name, or the elements of an array by index, in order.
func (n node) members() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		n = n.follow()
		object, _ := n.value.(map[string]any)
		names := slices.Sorted(maps.Keys(object))
		array, _ := n.value.([]any)
		for i := range array {
			names = append(names, strconv.Itoa(i))
		}
		for _, name := range names {
			if !yield(name, n.in(name)) {
				return
			}
		}
	}
}

// text gives a member that is a string, "" if there is none.
func (n node) text(name string) string {
	text, _ := n.in(name).value.(string)
	return text
}

// validate holds a value against the schema that n is, if there is one.
func (n node) validate(value any) error {
	if n.value == nil {
		return nil
	}
	n.mu.Lock()
	schema, err := n.compiler.Compile(home + "#" + (&url.URL{Fragment: n.at}).EscapedFragment())
	n.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

var escapes, unescape = strings.NewReplacer("~", "~0", "/", "~1"), strings.NewReplacer("~1", "/", "~0", "~")

func escape(token string) string { return escapes.Replace(token) }

// alsoAt is the member of a path for another path where the same is found, which
// linters would not take as one of its own.
const alsoAt = "x-also-at"

// response gives what the document says of a status of the answer to a request. Where several paths match, the one with
// fewer parameters wins. A 404 that any request can get is for unknown paths, and a 405 for unknown methods.
func (d *Document) response(method, escapedPath, status string) node {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var item node
	least := math.MaxInt
	for template, one := range d.in("paths").members() {
		for _, form := range []string{template, one.text(alsoAt)} {
			if n := strings.Count(form, "{"); n < least && matches(form, escapedPath) {
				item, least = one, n
			}
		}
	}
	operation := item.in(strings.ToLower(method))
	own := operation.in("responses", status)
	switch {
	case own.value != nil:
		return own.follow()
	case status == "404" && item.value != nil, status == "405" && (item.value == nil || operation.value != nil):
		return node{}
	}
	return d.in("x-any-request", status).follow()
}

// matches reports whether a path is of the form of a template; a parameter is
// one segment that is not empty.
func matches(template, escapedPath string) bool {
	want, have := strings.Split(template, "/"), strings.Split(escapedPath, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool {
		return want == have || strings.HasPrefix(want, "{") && have != ""
	})
}
