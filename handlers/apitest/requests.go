package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Request is a request to a documented operation, with at most one wrong value.
type Request struct {
	Operation, Method, Path, Media, Body string
	Header                               http.Header
	In                                   string // place of the value: "path", "query", "header" or "body"
	At                                   string // name of the parameter, or JSON Pointer into the body
	Value                                string
	Allowed                              bool
}

// Requests returns requests with one hostile value each. Every parameter and body member of every operation gets such values. If `edges`
// is true, values at and around each limit of a schema are also tried. All other values in a request are examples, or the smallest
// allowed values. `fill` returns values for path parameters.
func Requests(t testing.TB, text []byte, edges bool, fill func(operation, parameter string) string) []Request {
	t.Helper()
	w := &walker{document: New(t, text).document, edges: edges, seen: map[string]bool{}}
	paths := as[object](w.root["paths"])
	for _, template := range names(paths) {
		item := as[object](paths[template])
		for _, method := range names(item) {
			if id := as[string](as[object](item[method])["operationId"]); id != "" {
				w.base = Request{Operation: id, Method: strings.ToUpper(method)}
				w.fill = func(name string) string { return fill(id, name) }
				w.operation(template, method, item)
			}
		}
	}
	return w.all
}

type walker struct {
	*document
	edges bool
	fill  func(parameter string) string
	base  Request // valid request for the current operation
	body  *jsonschema.Schema
	seen  map[string]bool // $refs and parameters that were tried already
	turn  int             // changes with each call of `some` or `hostile`, so that the next call chooses other values
	all   []Request
}

var inPath = regexp.MustCompile(`{[^}]*}`)

// path fills in a path template: parameter `name` gets `value`, and every other parameter gets fill(parameter).
func (w *walker) path(template, name, value string) string {
	return inPath.ReplaceAllStringFunc(template, func(parameter string) string {
		if parameter = strings.Trim(parameter, "{}"); parameter == name {
			return url.PathEscape(value)
		}
		return w.fill(parameter)
	})
}

func (w *walker) operation(template, method string, item object) {
	w.base.Path = w.path(template, "", "")
	at, operation := "#/paths/"+escape(template), as[object](item[method])
	content := as[object](as[object](operation["requestBody"])["content"])
	for _, media := range names(content) {
		w.base.Media, w.base.Body = media, w.sample(w.flat(as[object](content[media])["schema"]))
	}
	for i, of := range []object{item, operation} {
		for j, parameter := range as[[]any](of["parameters"]) {
			allowed := w.schema(at + []string{"", "/" + method}[i] + "/parameters/" + strconv.Itoa(j) + "/schema")
			w.parameter(template, as[object](parameter), allowed)
		}
	}
	for _, media := range names(content) {
		w.base.Media, w.body = media, w.schema(at+"/"+method+"/requestBody/content/"+escape(media)+"/schema")
		w.node(as[object](content[media])["schema"], "", func(value string) string { return value })
	}
}

func (w *walker) parameter(template string, p object, allowed *jsonschema.Schema) {
	s, in, name := w.flat(p["schema"]), as[string](p["in"]), as[string](p["name"])
	values := w.valuesOf(s)
	shared := in + name + asJSON(s)
	if w.seen[shared] { // an equal parameter of an earlier operation got all values, so try fewer
		values = w.some(values)
	}
	w.seen[shared] = true
	for _, value := range values {
		if text, ok := asText(value); ok {
			value = text
		}
		r := w.base
		r.In, r.At, r.Value = in, name, value
		r.Allowed = isStorable(value) && allows(allowed, parse(s, value))
		switch {
		case in == "path" && value == "":
			continue // with an empty segment, the path would belong to another route
		case in == "path":
			r.Path = w.path(template, name, value)
		case in == "query":
			r.Path += "?" + name + "=" + url.QueryEscape(value)
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' && c != utf8.RuneError }):
			continue // clients do not send control characters
		default:
			r.Header = http.Header{name: {value}}
			r.Allowed = allows(allowed, asJSON(strings.TrimSpace(strings.ToValidUTF8(value, "\uFFFD"))))
		}
		w.all = append(w.all, r)
	}
	if in == "query" {
		for _, query := range []string{"=1&" + name + "=1", "=%zz", "=1&no%00such=1"} {
			r := w.base
			r.Path, r.In, r.Value = r.Path+"?"+name+query, in, query
			w.all = append(w.all, r)
		}
	}
}

// some returns every third value. Each call begins at a different value.
func (w *walker) some(values []string) (some []string) {
	w.turn++
	for i := w.turn % 3; i < len(values); i += 3 {
		some = append(some, values[i])
	}
	return some
}

// node adds requests that differ in one part of the body, the value at the JSON Pointer `at`. `wrap` returns a whole body that contains
// the given value. If the schema is a $ref, node varies the members only at the first use of this $ref.
func (w *walker) node(of any, at string, wrap func(value string) string) {
	s := w.flat(of)
	for _, value := range w.valuesOf(s) {
		w.add(at, value, wrap(value), true)
	}
	if ref := as[string](as[object](of)["$ref"]); ref != "" {
		if w.seen[ref] {
			return
		}
		w.seen[ref] = true
	}
	members := as[object](s["properties"])
	for _, name := range names(members) {
		w.node(members[name], at+"/"+escape(name), func(value string) string { return wrap(w.objectWith(s, name, value)) })
	}
	if closed := s["additionalProperties"] == false || s["unevaluatedProperties"] == false; closed {
		w.add(at+"/#", "unknown", wrap(w.objectWith(s, "#", "0")), true)
		for _, name := range names(members)[:min(1, len(members))] {
			value := w.sample(w.flat(members[name]))
			w.add(at+"/"+strings.ToUpper(name), "wrong case", wrap(w.objectWith(s, strings.ToUpper(name), value)), true)
			twice := strings.TrimSuffix(w.objectWith(s, name, value), "}") + `,"` + name + `":` + value + "}"
			w.add(at+"/"+escape(name), "twice", wrap(twice), false)
		}
	}
	for _, alternative := range slices.Concat(as[[]any](s["oneOf"]), as[[]any](s["anyOf"])) {
		if w.flat(alternative)["type"] != "null" {
			w.node(alternative, at, wrap)
		}
	}
	if items := s["items"]; items != nil {
		w.node(items, at+"/0", func(value string) string { return wrap("[" + value + "]") })
	}
}

func (w *walker) add(at, value, body string, mayBe bool) {
	r := w.base
	r.In, r.At, r.Value, r.Body = "body", at, value, body
	r.Allowed = mayBe && isStorable(body) && allows(w.body, body)
	w.all = append(w.all, r)
}

func allows(schema *jsonschema.Schema, value string) bool {
	var decoded any
	return json.Unmarshal([]byte(value), &decoded) == nil && schema.Validate(decoded) == nil
}

// isStorable reports whether Postgres can store the text: valid UTF-8 without NUL or \u0000.
func isStorable(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.Contains(text, `\u0000`)
}

// Problem returns what is wrong with the response to the request, or "". The response must not be a 5xx, accept a forbidden value, or
// refuse an allowed value. A refusal must name the value. Some values are forbidden only by a description in the document, not by a
// schema. For such a value, `finer` returns true.
func (r *Request) Problem(status int, body string, finer func(*Request) bool) string {
	var refusal struct {
		Violations []struct{ Pointer, Parameter *string }
	}
	_ = json.Unmarshal([]byte(body), &refusal) // an invalid body has no violations
	here, near := false, r.In == "path" || r.In == "header" || r.At == ""
	for _, v := range refusal.Violations {
		switch {
		case v.Parameter != nil:
			here = here || r.In == "query" && *v.Parameter == r.At
		case v.Pointer != nil && r.In == "body":
			here = here || strings.HasPrefix(*v.Pointer+"/", r.At+"/")
			near = near || strings.HasPrefix(r.At+"/", *v.Pointer+"/")
		}
	}
	wrong := ""
	switch refused := status >= 400 && status < 500; {
	case status >= 500:
		wrong = "failed"
	case !r.Allowed && !refused:
		wrong = "taken, against the document"
	case !r.Allowed && !here && !near:
		wrong = "refused without saying where"
	case r.Allowed && refused && here && r.At != "" && !finer(r):
		wrong = "refused, against the document"
	default:
		return ""
	}
	return fmt.Sprintf("%s: %s %q is %s: %.300q\n%s %s %.300q\n%.600s", r.Operation, r.In, r.At, wrong, r.Value, r.Method, r.Path, r.Body,
		body)
}

// InParallel splits the values into one part per CPU. It calls `try` for each part in a parallel subtest.
func InParallel[T any](t *testing.T, all []T, try func(t *testing.T, part []T)) {
	t.Helper()
	for part := range slices.Chunk(all, 1+len(all)/runtime.GOMAXPROCS(0)) {
		t.Run("part", func(t *testing.T) {
			t.Parallel()
			try(t, part)
		})
	}
}

// Odd lists wrong headers, queries and bodies that can be added to any request. Header alternates names and values.
var Odd = []struct {
	Header      []string
	Query, Body string
}{
	{Header: []string{"Content-Type", "text/plain"}}, {Header: []string{"Content-Type", "application/json; charset=latin1"}},
	{Header: []string{"Content-Type", "-"}}, {Header: []string{"Content-Encoding", "gzip"}}, {Header: []string{"Accept", "image/png"}},
	{Header: []string{"Accept-Encoding", "identity;q=0, *;q=0"}}, {Header: []string{"Authorization", "-"}},
	{Header: []string{"Authorization", "Bearer frk_none"}}, {Header: []string{"Expect", "the-unexpected"}},
	{Header: []string{"Idempotency-Key", `"open`}}, {Header: []string{"Idempotency-Key", strings.Repeat("k", 300)}},
	{Header: []string{"If-Match", `"other"`}}, {Header: []string{"If-Match", "not a tag"}}, {Header: []string{"If-None-Match", "*"}},
	{Header: []string{"Last-Event-ID", "-1"}}, {Header: []string{"Prefer", "wait=x"}}, {Header: []string{"Range", "bytes=9-1"}},
	{Header: []string{"X-Correlation-ID", strings.Repeat("c", 300)}},
	{Query: "unknown=1"}, {Query: "limit=1&limit=2"}, {Query: "cursor=%zz"}, {Query: "token=secret"},
	{Body: "{"}, {Body: "[]"}, {Body: `"` + strings.Repeat("x", 1<<16) + `"`},
}
