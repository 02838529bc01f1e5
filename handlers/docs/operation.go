package docs

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// operation is an operation of a path or a webhook.
type operation struct {
	node
	Method, Path string
	Access       string // who may ask
	Curl, Stream string // lines to copy; Stream is "" where no stream is answered
	Parameters   []member
	Answers      []node // those that are not problems
	Problems     []node

	sent string // the path with the values of the samples
}

// The words for who may ask.
const (
	accessKey      = "API key"
	accessOptional = "API key optional"
	accessOperator = "operator's token"
	accessOpen     = "open"
)

const mimeEventStream = "text/event-stream"

func operationOf(base string, item, of node) operation {
	o := operation{node: of, Method: strings.ToUpper(of.Key), Path: item.Key, Access: accessOptional}
	switch security := of.Get("security"); {
	case of.Text("x-access") == "operator":
		o.Access = accessOperator
	case !security.Exists():
		o.Access = accessKey
	case len(security.Content) == 0:
		o.Access = accessOpen
	}
	o.sent = o.Path
	for _, p := range slices.Concat(item.Get("parameters").Entries(), of.Get("parameters").Entries()) {
		p = p.Follow()
		m := p.Get("schema").member(p.Text("name"), p.Text("required") == "true")
		m.In, m.About = p.Text("in"), p.Text("description")
		m.Values = p.Get("schema").Follow().Get("enum").values()
		if examples := p.Get("examples").Members(); len(examples) > 0 {
			m.Example = examples[0].Text("value")
		}
		if m.In == "path" {
			o.sent = strings.ReplaceAll(o.sent, "{"+m.Name+"}", url.PathEscape(m.Example))
		}
		o.Parameters = append(o.Parameters, m)
	}
	for _, r := range of.Get("responses").Members() {
		if r.Key >= "4" && r.Ref() != "" {
			o.Problems = append(o.Problems, r)
		} else {
			o.Answers = append(o.Answers, r)
		}
	}
	o.Curl, o.Stream = o.curls(base)
	return o
}

// body is an example of what is sent.
type body struct {
	media string
	sample
}

func (o operation) bodies() (all []body) {
	for _, m := range o.Get("requestBody").Follow().Get("content").Members() {
		for _, e := range m.Get("examples").Members() {
			all = append(all, body{m.Key, sample{e.Text("summary"), e.Example(m.Key)}})
		}
	}
	return all
}

// needsBody reports whether the body may not be left out.
func (o operation) needsBody() bool { return o.Get("requestBody").Follow().Text("required") == "true" }

// curls gives the lines that send the first sample, and that ask for a stream
// where there is one. The key comes from the caller's environment, so that no
// history of a shell has it.
func (o operation) curls(base string) (plain, stream string) {
	target := quote(base + o.sent)
	line := "curl " + target
	if o.Method != http.MethodGet {
		line = "curl -X " + o.Method + " " + target
	}
	switch o.Access {
	case accessKey:
		line += " \\\n  -H \"Authorization: Bearer $FORGERUN_API_KEY\""
	case accessOperator:
		line += " \\\n  -H \"Authorization: Bearer $FORGERUN_ADMIN_TOKEN\""
	}
	if slices.Contains(o.accepted(), mimeEventStream) {
		stream = strings.Replace(line, "curl ", "curl -N ", 1) + " \\\n  -H 'Accept: " + mimeEventStream + "'"
	}
	if bodies := o.bodies(); len(bodies) > 0 && o.needsBody() {
		line += " \\\n  -H 'Content-Type: " + bodies[0].media + "' \\\n  -d " + quote(bodies[0].Text)
	}
	return line, stream
}

// quote makes one word of a text for a POSIX shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// accepted are the media types of good answers, one of which can be asked for.
func (o operation) accepted() []string {
	var all []string
	for _, r := range o.Answers {
		for _, m := range r.Follow().Get("content").Members() {
			media, _, _ := strings.Cut(m.Key, ";")
			if r.Key < "3" && media != "*/*" && !slices.Contains(all, media) {
				all = append(all, media)
			}
		}
	}
	return all
}

// sample is a message as it is sent, or its body.
type sample struct {
	Title string `json:"title"`
	Text  string `json:"text"`
}

// Requests gives samples of what is sent: one for each example of a body.
func (o operation) Requests() []sample {
	head := o.Method + " " + o.sent + " HTTP/1.1\n"
	switch o.Access {
	case accessKey, accessOperator:
		head += "Authorization: Bearer frk_...\n"
	case "signed":
		head = "POST / HTTP/1.1\n"
	}
	var samples []sample
	for _, b := range o.bodies() {
		samples = append(samples, sample{b.Title, head + "Content-Type: " + b.media + "\n\n" + b.Text})
	}
	if len(samples) == 0 {
		samples = []sample{{"", head}}
	}
	return samples
}

// Samples gives those of answers: one for each example, and of an answer without
// a body its status.
func (o operation) Samples() []sample {
	var samples []sample
	for _, r := range o.Answers {
		status, _ := strconv.Atoi(r.Key)
		head := "HTTP/1.1 " + r.Key + " " + http.StatusText(status) + "\n"
		contents := r.Follow().Get("content").Members()
		if len(contents) == 0 {
			samples = append(samples, sample{r.Key, head})
		}
		for _, m := range contents {
			for _, e := range m.Get("examples").Members() {
				title := r.Key
				if about := e.Text("summary"); about != "" {
					title += ": " + about
				}
				samples = append(samples, sample{title, head + "Content-Type: " + m.Key + "\n\n" + e.Example(m.Key)})
			}
		}
	}
	return samples
}

// form is what the script needs of an operation.
type form struct {
	Method     string   `json:"method"`
	Path       string   `json:"path"`
	Access     string   `json:"access"`
	Parameters []member `json:"parameters"`
	Media      string   `json:"media,omitempty"` // of the body
	Bodies     []sample `json:"bodies,omitempty"`
	Optional   bool     `json:"optional,omitempty"` // the body may be left out
	Accept     []string `json:"accept,omitempty"`
}

func (o operation) form() form {
	f := form{
		Method: o.Method, Path: o.Path, Access: o.Access, Parameters: append([]member{}, o.Parameters...), Accept: o.accepted(),
		Optional: !o.needsBody(),
	}
	for _, b := range o.bodies() {
		if f.Media == "" || f.Media == b.media {
			f.Media, f.Bodies = b.media, append(f.Bodies, b.sample)
		}
	}
	return f
}
