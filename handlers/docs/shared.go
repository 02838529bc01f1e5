package docs

import (
	"regexp"
	"strings"
	"sync"
)

// AsyncAPI is the document of the event streams.
var AsyncAPI = sync.OnceValue(func() []byte { return WithShared(asyncAPI) })

// component is the name of a section, such as schemas, and of what it holds.
type component [2]string

var references = regexp.MustCompile(`#/components/(\w+)/([\w-]+)`)

// WithShared returns a document with those components of OpenAPI that it refers to and does not have.
func WithShared(document []byte) []byte {
	shared, text := components(string(OpenAPI)), string(document)
	for complete := false; !complete; {
		complete = true
		own := components(text)
		for _, m := range references.FindAllStringSubmatch(text, -1) {
			c := component(m[1:])
			if own[c] != "" || shared[c] == "" {
				continue
			}
			own[c], complete = shared[c], false
			section := "\n  " + c[0] + ":\n"
			text = strings.Replace(text, section, section+shared[c], 1)
		}
	}
	return []byte(text)
}

// components returns the lines of each component. Sections are indented by two spaces, components by four.
func components(document string) map[component]string {
	found := map[component]string{}
	_, text, _ := strings.Cut(document, "\ncomponents:\n")
	var at component
	for line := range strings.Lines(text) {
		name, _, isKey := strings.Cut(strings.TrimLeft(line, " "), ":")
		switch indent := len(line) - len(strings.TrimLeft(line, " ")); {
		case indent == 2 && isKey:
			at = component{name}
			continue
		case indent == 4 && isKey:
			at[1] = name
		}
		if at[1] != "" {
			found[at] += line
		}
	}
	return found
}
