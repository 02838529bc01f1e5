// Package docs holds what the service says of itself: the descriptions of its
// API and the pages to which documents, problems and links point.
package docs

import (
	"bytes"
	_ "embed" // the documents and the template
	"html/template"
	"regexp"
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

// The same documents as JSON, their members in the same order.
var (
	OpenAPIJSON  = sync.OnceValue(func() []byte { return asJSON(OpenAPI) })
	AsyncAPIJSON = sync.OnceValue(func() []byte { return asJSON(AsyncAPI) })
)

func asJSON(text []byte) []byte { return []byte(read(text).pretty("") + "\n") }

// read cannot fail: the documents are the program's own, and tests read them.
func read(text []byte) node {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		panic(err)
	}
	return node{Node: root.Content[0], root: root.Content[0]}
}

// Operations gives the operationId of each operation by its method and path, as in "GET /v1/jobs/{id}".
var Operations = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, item := range read(OpenAPI).Get("paths").Members() {
		for _, o := range item.Members() {
			if id := o.Text("operationId"); id != "" {
				all[strings.ToUpper(o.Key)+" "+item.Key] = id
			}
		}
	}
	return all
})

// Page is OpenAPI as a page to read. It is rendered when it is first asked for.
var Page = sync.OnceValue(func() []byte { return render(OpenAPI) })

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("docs").Funcs(template.FuncMap{"paragraphs": paragraphs}).Parse(pageText))

// render cannot fail: the template is the program's own, and a test renders it.
func render(text []byte) []byte {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, page{read(text)}); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// page is the document as the template sees it.
type page struct{ node }

// Codes are the error codes that the page explains.
func (page) Codes() []job.CodeSpec { return job.Codes }

// Reasons are those of failed attempts.
func (page) Reasons() []job.ReasonSpec { return job.Reasons }

// Operations gives the operations of a tag in the document's order.
func (p page) Operations(tag string) []operation {
	var operations []operation
	for _, item := range p.Get("paths").Members() {
		for _, o := range item.Members() {
			if tags := o.Get("tags").values(); len(tags) > 0 && tags[0] == tag {
				operations = append(operations, operationOf(item, o))
			}
		}
	}
	return operations
}

// Webhooks gives what receivers get. All that they can answer is an answer; none
// is a problem document.
func (p page) Webhooks() []operation {
	var operations []operation
	for _, item := range p.Get("webhooks").Members() {
		o := operationOf(item, item.Get("post"))
		o.Method, o.Access = "POST", "signed"
		o.Answers, o.Problems = append(o.Answers, o.Problems...), nil
		operations = append(operations, o)
	}
	return operations
}

// Headers gives the headers that answers share.
func (p page) Headers() []member {
	var headers []member
	for _, header := range p.Get("components").Get("headers").Members() {
		m := header.Get("schema").member(header.Key, header.Text("required") == "true")
		m.Anchor, m.About = "header-"+header.Key, header.Text("description")
		headers = append(headers, m)
	}
	return headers
}

// operation is an operation of a path or a webhook.
type operation struct {
	node
	Method, Path string
	Access       string // who may ask
	Parameters   []member
	Answers      []node // those that are not problems
	Problems     []node
}

func operationOf(item, of node) operation {
	o := operation{node: of, Method: strings.ToUpper(of.Key), Path: item.Key, Access: "API key optional"}
	switch security := of.Get("security"); {
	case !security.Exists():
		o.Access = "API key"
	case len(security.Content) == 0:
		o.Access = "open"
	}
	for _, p := range slices.Concat(item.Get("parameters").Entries(), of.Get("parameters").Entries()) {
		p = p.Follow()
		m := p.Get("schema").member(p.Text("name"), p.Text("required") == "true")
		m.In, m.About = p.Text("in"), p.Text("description")
		o.Parameters = append(o.Parameters, m)
	}
	for _, r := range of.Get("responses").Members() {
		if r.Key >= "4" && r.Ref() != "" {
			o.Problems = append(o.Problems, r)
		} else {
			o.Answers = append(o.Answers, r)
		}
	}
	return o
}

// span is a piece of a description.
type span struct {
	Text       string
	Code, Bold bool
}

var spanForm = regexp.MustCompile("`[^`]+`|\\*\\*[^*]+\\*\\*")

// paragraphs reads a description: paragraphs are divided by empty lines, and
// have `code` and **bold** text.
func paragraphs(description string) [][]span {
	var all [][]span
	for paragraph := range strings.SplitSeq(strings.TrimSpace(description), "\n\n") {
		var spans []span
		at := 0
		for _, found := range spanForm.FindAllStringIndex(paragraph, -1) {
			special := paragraph[found[0]:found[1]]
			spans = append(spans, span{Text: paragraph[at:found[0]]},
				span{Text: strings.Trim(special, "`*"), Code: special[0] == '`', Bold: special[0] == '*'})
			at = found[1]
		}
		all = append(all, append(spans, span{Text: paragraph[at:]}))
	}
	return all
}
