// Package docs holds what the service says of itself: the descriptions of its
// API and the pages to which documents, problems and links point.
package docs

import (
	"bytes"
	_ "embed" // the documents and the template
	"html/template"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/job"
)

// The descriptions of the API, written by hand. Tests hold them against the
// routes, the views and every answer.
var (
	//go:embed openapi.yaml
	OpenAPI []byte
	//go:embed asyncapi.yaml
	AsyncAPI []byte
)

// Page is OpenAPI as a page to read. It is rendered when it is first asked for.
var Page = sync.OnceValue(func() []byte { return render(OpenAPI) })

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("docs").Funcs(template.FuncMap{"paragraphs": paragraphs}).Parse(pageText))

// render cannot fail: template and document are the program's own, and a
// test renders them.
func render(text []byte) []byte {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
	reader := docsReader{docNode{root.Content[0]}}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, reader.docs()); err != nil {
		panic(err)
	}
	return page.Bytes()
}

// docsView is what the page shows.
type docsView struct {
	Title, Summary, Version, About string

	Tags      []docTag
	Webhooks  []docOperation // what receivers get
	Any       []docResponse  // answers to any request
	Responses []docResponse  // shared by operations
	Headers   []docMember
	Codes     []job.CodeSpec
	Reasons   []job.ReasonSpec
	Schemas   []docSchema
}

type docTag struct {
	Name, About string
	Operations  []docOperation
}

type docOperation struct {
	ID, Method, Path, Summary, About string

	Access     string // who may ask
	Parameters []docMember
	Body       *docBody
	Answers    []docResponse // those that are not problems
	Problems   []docResponse // of these, Name and Status
}

type docBody struct {
	Required bool
	About    string
	Contents []docContent
}

type docResponse struct {
	Name, Status, About string
	Headers             []docMember // of these, Name and Anchor
	Contents            []docContent
}

type docContent struct {
	Media    string
	Type     docType // empty: bytes
	Examples []docExample
}

type docExample struct{ Summary, Text string }

// docMember is a parameter, a header, or a member of an object.
type docMember struct {
	Name, Anchor, In, About, Limits string

	Type     docType
	Required bool
}

// docsReader reads an OpenAPI document; what is missing is empty. It reads YAML
// nodes, which keep the order of members: a model of OpenAPI would be a large
// dependency of the program, for no less code.
type docsReader struct{ root docNode }

func (d docsReader) docs() docsView {
	info := d.root.get("info")
	v := docsView{
		Title: info.text("title"), Summary: info.text("summary"), Version: info.text("version"), About: info.text("description"),
		Codes: job.Codes, Reasons: job.Reasons, Schemas: d.schemas(),
	}
	for _, tag := range d.root.get("tags").Content {
		name := docNode{tag}.text("name")
		v.Tags = append(v.Tags, docTag{name, docNode{tag}.text("description"), d.operations(name)})
	}
	for status, response := range d.root.get("x-any-request").members() {
		v.Any = append(v.Any, d.response(status, response))
	}
	for name, item := range d.root.get("webhooks").members() {
		v.Webhooks = append(v.Webhooks, d.webhook(name, item))
	}
	components := d.root.get("components")
	for name, response := range components.get("responses").members() {
		r := d.response("", response)
		r.Name = name
		v.Responses = append(v.Responses, r)
	}
	for name, header := range components.get("headers").members() {
		m := d.member(name, header.get("schema"), header.text("required") == "true")
		m.Anchor, m.About = "header-"+name, header.text("description")
		v.Headers = append(v.Headers, m)
	}
	return v
}

// operations gives the operations of a tag in the document's order.
func (d docsReader) operations(tag string) []docOperation {
	var operations []docOperation
	for path, item := range d.root.get("paths").members() {
		for method, operation := range item.members() {
			if method == "parameters" || operation.get("tags").Content[0].Value != tag {
				continue
			}
			operations = append(operations, d.operation(strings.ToUpper(method), path, item, operation))
		}
	}
	return operations
}

func (d docsReader) operation(method, path string, item, operation docNode) docOperation {
	o := docOperation{
		ID: operation.text("operationId"), Method: method, Path: path,
		Summary: operation.text("summary"), About: operation.text("description"), Access: accessOf(operation),
	}
	for _, parameter := range slices.Concat(item.get("parameters").Content, operation.get("parameters").Content) {
		p := d.follow(docNode{parameter})
		m := d.member(p.text("name"), p.get("schema"), p.text("required") == "true")
		m.In, m.About = p.text("in"), p.text("description")
		o.Parameters = append(o.Parameters, m)
	}
	if body := d.follow(operation.get("requestBody")); !body.IsZero() {
		o.Body = &docBody{body.text("required") == "true", body.text("description"), d.contents(body)}
	}
	for status, response := range operation.get("responses").members() {
		r := d.response(status, response)
		if status >= "4" && r.Name != "" {
			o.Problems = append(o.Problems, r)
		} else {
			o.Answers = append(o.Answers, r)
		}
	}
	return o
}

// webhook gives what receivers get under a name. All that they can answer is an
// answer; none is a problem document.
func (d docsReader) webhook(name string, item docNode) docOperation {
	o := d.operation("POST", name, item, item.get("post"))
	o.Access = "signed"
	o.Answers, o.Problems = append(o.Answers, o.Problems...), nil
	return o
}

// accessOf says who may ask for an operation.
func accessOf(operation docNode) string {
	security := operation.get("security")
	switch {
	case security.IsZero():
		return "API key"
	case len(security.Content) == 0:
		return "open"
	default:
		return "API key optional"
	}
}

func (d docsReader) response(status string, response docNode) docResponse {
	r := docResponse{Name: lastPart(response.text("$ref")), Status: status}
	response = d.follow(response)
	r.About, r.Contents = response.text("description"), d.contents(response)
	for name, header := range response.get("headers").members() {
		r.Headers = append(r.Headers, docMember{Name: name, Anchor: lastPart(header.text("$ref"))})
	}
	return r
}

func (d docsReader) contents(of docNode) []docContent {
	var contents []docContent
	for media, content := range of.get("content").members() {
		c := docContent{Media: media, Type: d.typeOf(content.get("schema"))}
		for _, example := range content.get("examples").members() {
			text := example.get("value").pretty("")
			if media != "application/json" && !strings.HasSuffix(media, "+json") {
				text = example.text("value") // as it is sent
			}
			c.Examples = append(c.Examples, docExample{example.text("summary"), text})
		}
		contents = append(contents, c)
	}
	return contents
}

// follow gives what a $ref leads to, or the node itself.
func (d docsReader) follow(n docNode) docNode {
	for ref := n.text("$ref"); ref != ""; ref = n.text("$ref") {
		n = d.root
		for token := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			n = n.get(token)
		}
	}
	return n
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
