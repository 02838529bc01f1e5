package docs

import (
	_ "embed" // the style and script
	"html/template"
	"regexp"
	"strings"

	"github.com/forgerun/forgerun/job"
)

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// page is the document as the template page.html sees it.
type page struct {
	node
	Base string // of the addresses
}

// Style and Script are what the page's policy allows: the very texts.
func (page) Style() template.CSS { return template.CSS(baseStyle + pageStyle) } //nolint:gosec // the program's own
func (page) Script() template.JS { return template.JS(pageScript) }             //nolint:gosec // the program's own

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
				operations = append(operations, operationOf(p.Base, item, o))
			}
		}
	}
	return operations
}

// Forms gives what the script needs to ask for values and to send a request.
func (p page) Forms() map[string]form {
	forms := map[string]form{}
	for _, tag := range p.Get("tags").Entries() {
		for _, o := range p.Operations(tag.Text("name")) {
			forms[o.Text("operationId")] = o.form()
		}
	}
	return forms
}

// Webhooks gives what receivers get. All that they can answer is an answer; none
// is a problem document.
func (p page) Webhooks() []operation {
	var operations []operation
	for _, item := range p.Get("webhooks").Members() {
		o := operationOf("", item, item.Get("post"))
		o.Method, o.Access, o.Curl, o.Stream = "POST", "signed", "", ""
		o.Answers, o.Problems = append(o.Answers, o.Problems...), nil
		operations = append(operations, o)
	}
	return operations
}

// message is what a stream or a broker sends.
type message struct{ Name, Title, Sample string }

// Messages gives those of the AsyncAPI document that belong to streams; what
// receivers of webhooks get is among Webhooks.
func (page) Messages() []message {
	var messages []message
	root := read(AsyncAPI())
	for _, m := range root.Get("components").Get("messages").Members() {
		for _, e := range m.Get("examples").Entries() {
			event := e.Get("headers").Text("event")
			if event == "" {
				continue
			}
			sample := "event: " + event + "\ndata: " + e.Get("payload").line()
			if id := e.Get("headers").Text("id"); id != "" {
				sample = "id: " + id + "\n" + sample
			}
			messages = append(messages, message{m.Key, m.Text("title"), sample})
		}
	}
	return messages
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
