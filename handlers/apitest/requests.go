package apitest

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Request is a request that a document describes, in which one value may be wrong.
type Request struct {
	Operation, Method, Path, Media, Body string
	Header                               http.Header
	In                                   string // "path", "query" or "header": a parameter; or "body"
	At                                   string // the name of the parameter, or a JSON Pointer into the body
	Value                                string // what is there, as text, or as JSON
	Allowed                              bool   // whether the document allows it
}

// Values are what is put into requests.
type Values int

// Hostile values are those that programs forget about. Edges are those, and the last values that a schema allows with the first
// ones that it does not.
const (
	Hostile Values = iota
	Edges
)

// Requests gives for each parameter, member and element that requests can have those with the values for it. The others have what
// the document names as an example, or the least that it allows; of a path they have what fill gives.
func Requests(t testing.TB, openAPI []byte, values Values, fill func(operation, parameter string) string) []Request {
	t.Helper()
	w := &requests{tree: New(t, openAPI).tree, edges: values == Edges, seen: map[any]bool{}}
	for template, item := range w.in("paths").members() {
		for method, operation := range item.members() {
			if id := operation.text("operationId"); id != "" {
				w.base = Request{Operation: id, Method: strings.ToUpper(method), Path: template}
				w.fill = func(name string) string { return fill(id, name) }
				w.operation(item, operation)
			}
		}
	}
	return w.all
}

type requests struct {
	*tree
	edges bool
	fill  func(parameter string) string
	base  Request      // of the operation
	body  node         // its schema
	seen  map[any]bool // references that were followed
	all   []Request
}

// operation adds the requests of one operation.
func (w *requests) operation(item, operation node) {
	var parameters []node
	for _, of := range []node{item, operation} {
		for _, p := range of.in("parameters").members() {
			parameters = append(parameters, p.follow())
		}
	}
	template := w.base.Path
	for _, p := range parameters {
		if name := p.text("name"); p.text("in") == "path" {
			w.base.Path = strings.ReplaceAll(w.base.Path, "{"+name+"}", w.fill(name))
		}
	}
	content := operation.in("requestBody", "content")
	for media, kind := range content.members() {
		w.base.Media, w.base.Body = media, w.sample(w.flatOf(kind.in("schema").value))
	}
	for _, p := range parameters {
		if w.edges && p.text("in") != "query" && w.seen[p.at] {
			continue // one route reads it as the other does
		}
		w.seen[p.at] = true
		w.parameter(template, p)
	}
	for media, kind := range content.members() {
		w.base.Media, w.body = media, kind.in("schema")
		w.node(w.body.value, "", func(value string) string { return value })
	}
}

func (w *requests) valuesOf(s keywords) []string {
	if w.edges {
		return w.edgesOf(s)
	}
	return hostile
}

// parameter adds the requests with values of a parameter.
func (w *requests) parameter(template string, p node) {
	name, in, schema := p.text("name"), p.text("in"), p.in("schema")
	flat := w.flatOf(schema.value)
	for _, value := range w.valuesOf(flat) {
		if text, ok := asText(value); ok {
			value = text
		}
		r := w.base
		r.In, r.At, r.Value = in, name, value
		r.Allowed = schema.validate(flat.parse(value)) == nil && isStorable(value)
		switch in {
		case "path":
			if value == "" {
				continue // it is another path
			}
			r.Path = strings.ReplaceAll(template, "{"+name+"}", url.PathEscape(value))
			for _, other := range strings.Split(r.Path, "/") {
				if strings.HasPrefix(other, "{") {
					r.Path = strings.ReplaceAll(r.Path, other, w.fill(strings.Trim(other, "{}")))
				}
			}
		case "query":
			r.Path += "?" + name + "=" + url.QueryEscape(value)
		case "header":
			if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' && c != utf8.RuneError }) {
				continue // clients do not send it
			}
			r.Header, r.Allowed = http.Header{name: {value}}, schema.validate(strings.TrimSpace(strings.ToValidUTF8(value, "\uFFFD"))) == nil
		}
		w.all = append(w.all, r)
	}
	if in == "query" {
		for _, query := range []string{"=1&" + name + "=1", "=%zz", "=1&no%00such=1"} {
			r := w.base
			r.Path, r.In, r.At, r.Value = r.Path+"?"+name+query, in, "", query
			w.all = append(w.all, r)
		}
	}
}

// node adds the requests with values for a part of the body, which wrap makes a whole one. The members of a schema that has a
// name have theirs in one place.
func (w *requests) node(schema any, at string, wrap func(value string) string) {
	s := w.flatOf(schema)
	for _, value := range w.valuesOf(s) {
		w.add(at, value, wrap(value), true)
	}
	if named, _ := schema.(map[string]any); named["$ref"] != nil {
		if w.seen[named["$ref"]] {
			return
		}
		w.seen[named["$ref"]] = true
	}
	properties := s.object("properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		w.node(properties[name], at+"/"+escape(name), func(value string) string {
			return wrap(w.objectWith(s, name, value))
		})
	}
	if closed := s["additionalProperties"] == false || s["unevaluatedProperties"] == false; closed {
		w.add(at+"/#", "unknown", wrap(w.objectWith(s, "#", "0")), true)
		if len(properties) == 0 {
			return
		}
		name := slices.Min(slices.Collect(maps.Keys(properties)))
		value := w.sample(w.flatOf(properties[name]))
		w.add(at+"/"+strings.ToUpper(name), "wrong case", wrap(w.objectWith(s, strings.ToUpper(name), value)), true)
		twice := strings.TrimSuffix(w.objectWith(s, name, value), "}") + `,"` + name + `":` + value + "}"
		w.add(at+"/"+escape(name), "twice", wrap(twice), false)
	}
	for _, kind := range []string{"oneOf", "anyOf"} {
		alternatives, _ := s[kind].([]any)
		for _, alternative := range alternatives {
			if w.flatOf(alternative)["type"] != "null" {
				w.node(alternative, at, wrap)
			}
		}
	}
	if items := s["items"]; items != nil {
		w.node(items, at+"/0", func(value string) string { return wrap("[" + value + "]") })
	}
}

// add adds a request with a body.
func (w *requests) add(at, value, body string, mayBe bool) {
	r := w.base
	r.In, r.At, r.Value, r.Body = "body", at, value, body
	if parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(body))); err == nil && mayBe && isStorable(body) {
		r.Allowed = w.body.validate(parsed) == nil
	}
	w.all = append(w.all, r)
}

// isStorable reports whether a text, or text within JSON, is one that a database can hold.
func isStorable(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.Contains(text, `\u0000`)
}

// Problem gives what is wrong with the answer to the request, "" for nothing: an internal error; that what the document does not
// allow is taken, or refused without saying where; or that what it allows is refused. finer says of which values the document does
// not say all that is asked for.
func (r *Request) Problem(status int, body string, finer func(*Request) bool) string {
	var refusal struct {
		Violations []struct{ Pointer, Parameter *string }
	}
	decodeLoosely(body, &refusal)
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

// Odd is what may be wrong with a request whatever its operation is: headers as name, value, ..., a query, and a body if it is not "".
var Odd = []struct {
	Header      []string
	Query, Body string
}{
	{Header: []string{"Content-Type", "text/plain"}},
	{Header: []string{"Content-Type", "application/json; charset=latin1"}},
	{Header: []string{"Content-Type", "-"}},
	{Header: []string{"Content-Encoding", "gzip"}},
	{Header: []string{"Accept", "image/png"}},
	{Header: []string{"Accept-Encoding", "identity;q=0, *;q=0"}},
	{Header: []string{"Authorization", "-"}},
	{Header: []string{"Authorization", "Bearer frk_none"}},
	{Header: []string{"Expect", "the-unexpected"}},
	{Header: []string{"Idempotency-Key", `"open`}},
	{Header: []string{"Idempotency-Key", strings.Repeat("k", 300)}},
	{Header: []string{"If-Match", `"other"`}},
	{Header: []string{"If-Match", "not a tag"}},
	{Header: []string{"If-None-Match", "*"}},
	{Header: []string{"Last-Event-ID", "-1"}},
	{Header: []string{"Prefer", "wait=x"}},
	{Header: []string{"Range", "bytes=9-1"}},
	{Header: []string{"X-Correlation-ID", strings.Repeat("c", 300)}},
	{Query: "unknown=1"},
	{Query: "limit=1&limit=2"},
	{Query: "cursor=%zz"},
	{Query: "token=secret"},
	{Body: "{"},
	{Body: "[]"},
	{Body: `"` + strings.Repeat("x", 1<<20) + `"`},
}
