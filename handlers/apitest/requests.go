package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"
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

// Requests returns requests with one hostile value each, for every parameter, member and element of every operation. With edges
// they also have the last values that a schema allows and the first ones that it does not. The rest of a request is taken from
// the document's examples, or is the least that it allows; fill returns the parameters of its path.
func Requests(t testing.TB, openAPI []byte, edges bool, fill func(operation, parameter string) string) []Request {
	t.Helper()
	w := &walker{edges: edges, seen: map[string]bool{}, options: config.NewValidationOptions(config.WithFormatAssertions())}
	d := New(t, openAPI)
	d.mu.Lock()
	defer d.mu.Unlock()
	for template, item := range d.model.Paths.PathItems.FromOldest() {
		for method, operation := range item.GetOperations().FromOldest() {
			if id := operation.OperationId; id != "" {
				w.base = Request{Operation: id, Method: strings.ToUpper(method), Path: template}
				w.fill = func(name string) string { return fill(id, name) }
				w.operation(item, operation)
			}
		}
	}
	return w.all
}

type walker struct {
	edges   bool
	options *config.ValidationOptions
	fill    func(parameter string) string
	base    Request                 // of the operation
	body    func(value string) bool // reports whether the operation allows a body
	seen    map[string]bool         // references
	all     []Request
}

// operation adds the requests of one operation.
func (w *walker) operation(item *v3.PathItem, operation *v3.Operation) {
	all, template := slices.Concat(item.Parameters, operation.Parameters), w.base.Path
	for _, p := range all {
		if p.In == "path" {
			w.base.Path = strings.ReplaceAll(w.base.Path, "{"+p.Name+"}", w.fill(p.Name))
		}
	}
	var content *orderedmap.Map[string, *v3.MediaType]
	if operation.RequestBody != nil {
		content = operation.RequestBody.Content
	}
	for media, kind := range content.FromOldest() {
		w.base.Media, w.base.Body = media, sample(flat(kind.Schema))
	}
	for _, p := range all {
		if ref := p.GoLow().GetReference(); ref == "" || p.In == "query" || !w.edges || !w.seen[ref] { // one route reads it as the other does
			w.seen[ref] = true
			w.parameter(template, p)
		}
	}
	for media, kind := range content.FromOldest() {
		w.base.Media, w.body = media, w.allows(kind.Schema)
		w.node(kind.Schema, "", func(value string) string { return value })
	}
}

// parameter adds the requests with values of a parameter.
func (w *walker) parameter(template string, p *v3.Parameter) {
	s, allows := flat(p.Schema), w.allows(p.Schema)
	for _, value := range valuesOf(s, w.edges) {
		if text, ok := asText(value); ok {
			value = text
		}
		r := w.base
		r.In, r.At, r.Value = p.In, p.Name, value
		r.Allowed = isStorable(value) && allows(parse(s, value))
		switch p.In {
		case "path":
			if value == "" {
				continue // it is another path
			}
			r.Path = strings.ReplaceAll(template, "{"+p.Name+"}", url.PathEscape(value))
			for _, other := range strings.Split(r.Path, "/") {
				if strings.HasPrefix(other, "{") {
					r.Path = strings.ReplaceAll(r.Path, other, w.fill(strings.Trim(other, "{}")))
				}
			}
		case "query":
			r.Path += "?" + p.Name + "=" + url.QueryEscape(value)
		case "header":
			if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' && c != utf8.RuneError }) {
				continue // clients do not send it
			}
			r.Header = http.Header{p.Name: {value}}
			r.Allowed = allows(asJSON(strings.TrimSpace(strings.ToValidUTF8(value, "\uFFFD"))))
		}
		w.all = append(w.all, r)
	}
	if p.In == "query" {
		for _, query := range []string{"=1&" + p.Name + "=1", "=%zz", "=1&no%00such=1"} {
			r := w.base
			r.Path, r.In, r.At, r.Value = r.Path+"?"+p.Name+query, p.In, "", query
			w.all = append(w.all, r)
		}
	}
}

// node adds the requests with values for a part of the body. wrap returns the whole body. The members of a named schema are
// changed in one place only.
func (w *walker) node(of *base.SchemaProxy, at string, wrap func(value string) string) {
	s := flat(of)
	for _, value := range valuesOf(s, w.edges) {
		w.add(at, value, wrap(value), true)
	}
	if ref := of.GetReference(); ref != "" {
		if w.seen[ref] {
			return
		}
		w.seen[ref] = true
	}
	for name, member := range s.Properties.FromOldest() {
		w.node(member, at+"/"+escape(name), func(value string) string { return wrap(objectWith(s, name, value)) })
	}
	if isFalse(s.AdditionalProperties) || isFalse(s.UnevaluatedProperties) {
		w.add(at+"/#", "unknown", wrap(objectWith(s, "#", "0")), true)
		first := s.Properties.First()
		if first == nil {
			return
		}
		name, value := first.Key(), sample(flat(first.Value()))
		w.add(at+"/"+strings.ToUpper(name), "wrong case", wrap(objectWith(s, strings.ToUpper(name), value)), true)
		twice := strings.TrimSuffix(objectWith(s, name, value), "}") + `,"` + name + `":` + value + "}"
		w.add(at+"/"+escape(name), "twice", wrap(twice), false)
	}
	for _, alternative := range slices.Concat(s.OneOf, s.AnyOf) {
		if !slices.Equal(flat(alternative).Type, []string{"null"}) {
			w.node(alternative, at, wrap)
		}
	}
	if s.Items != nil {
		w.node(s.Items.A, at+"/0", func(value string) string { return wrap("[" + value + "]") })
	}
}

// add adds a request with a body.
func (w *walker) add(at, value, body string, mayBe bool) {
	r := w.base
	r.In, r.At, r.Value, r.Body = "body", at, value, body
	r.Allowed = mayBe && isStorable(body) && w.body(body)
	w.all = append(w.all, r)
}

// allows returns a function that reports whether a schema allows a value in JSON.
func (w *walker) allows(of *base.SchemaProxy) func(value string) bool {
	const purpose = schema_validation.SchemaValidationPurposeRequestBody
	compiled, err := schema_validation.CompileSchemaForValidation(of.Schema(), purpose, w.options, 3.1)
	return func(value string) bool {
		var decoded any
		return err == nil && json.Unmarshal([]byte(value), &decoded) == nil && compiled.CompiledSchema.Validate(decoded) == nil
	}
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
	_ = json.Unmarshal([]byte(body), &refusal) // a body that is no JSON has no violations
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
