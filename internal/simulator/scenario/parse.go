package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// mostEntries bounds the members of a mapping and the elements of a list.
const mostEntries = 100

// Parse reads a scenario; file is named in its mistakes, and the default name comes from it. The error for a bad one
// is an *InvalidError.
func Parse(file string, text []byte) (*Scenario, error) {
	p := &parser{file: file}
	s := defaults(file)
	if p.root = p.document(text); p.root != nil {
		p.scenario(s)
	}
	if err := invalid(p.found); err != nil {
		return nil, err
	}
	return s, nil
}

// parser collects what is wrong with a file, so that all of it is reported at once.
type parser struct {
	file    string
	root    *yaml.Node
	found   []Mistake
	partial bool // decoded values would not be where their nodes are
}

func (p *parser) wrong(at *yaml.Node, format string, args ...any) {
	p.found = append(p.found, Mistake{p.file, max(at.Line, 1), max(at.Column, 1), fmt.Sprintf(format, args...)})
}

// scenario validates and decodes the file as far as possible: the checks beyond the schema are made on a bad file
// too.
func (p *parser) scenario(s *Scenario) {
	var mistakes *jsonschema.ValidationError
	if errors.As(compiled().Validate(p.value(p.root)), &mistakes) {
		p.explain(mistakes)
		if len(p.found) == 0 {
			p.wrong(p.root, "%v", mistakes) // no keyword of the schema is without a message today
		}
	}
	if p.partial {
		return
	}
	if err := p.root.Decode(s); err != nil && len(p.found) == 0 {
		p.wrong(p.root, "%v", err)
	}
	p.check(s)
}

// value is a node as the validator wants it. The YAML library decodes scalars only:
// it would resolve aliases and merge keys, refuse repeated members without a place,
// and drop elements of another kind from a list.
func (p *parser) value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) > 2*mostEntries {
			p.partial = true
			return nil
		}
		members := map[string]any{}
		for i, name := range memberNames(n) {
			members[name] = p.value(n.Content[2*i+1])
			p.partial = p.partial || name != n.Content[2*i].Value || n.Content[2*i].ShortTag() == "!!merge"
		}
		return members
	case yaml.SequenceNode:
		p.partial = p.partial || len(n.Content) > mostEntries
		elements := []any{}
		for _, e := range n.Content[:min(len(n.Content), mostEntries+1)] {
			elements = append(elements, p.value(e))
			p.partial = p.partial || e.Kind != n.Content[0].Kind
		}
		return elements
	case yaml.AliasNode:
		p.partial = true
		return nil
	}
	var v any
	switch n.ShortTag() {
	case "!!str":
		return n.Value
	case "!!bool", "!!int", "!!float":
		if n.Decode(&v) != nil {
			return nil
		}
	}
	if f, ok := v.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return nil
	}
	return v
}

// memberNames names the members of a mapping. What is not a plain name, or a repeated one, gets a name that no schema
// knows.
func memberNames(n *yaml.Node) []string {
	var names []string
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if n.Content[i].Kind != yaml.ScalarNode || seen[name] {
			name = fmt.Sprintf("%s\x00%d", name, i)
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}

// document is the root of the file's only document, or nil after a mistake.
func (p *parser) document(text []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(text) > maxFile {
		p.wrong(start, "the file is too large: a scenario has at most %d bytes", maxFile)
		return nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := reader.Decode(&document)
	switch {
	case errors.Is(err, io.EOF) || err == nil && (len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null"):
		p.wrong(start, "the file is empty: a scenario needs at least duration or jobs, arrival and mix")
		return nil
	case err != nil:
		p.notYAML(err)
		return nil
	}
	switch err := reader.Decode(&second); {
	case errors.Is(err, io.EOF):
		return document.Content[0]
	case err != nil:
		p.notYAML(err)
	default:
		p.wrong(&second, "a second document starts here: a file has one scenario")
	}
	return nil
}

var yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+)(?:, column ([0-9]+))?: )?((?s).*)$`)

// notYAML takes the place out of the library's error, which has it as text only.
func (p *parser) notYAML(err error) {
	at, what := &yaml.Node{}, err.Error()
	if parts := yamlError.FindStringSubmatch(what); parts != nil {
		at.Line, _ = strconv.Atoi(parts[1])
		at.Column, _ = strconv.Atoi(parts[2])
		what = parts[3]
	}
	p.wrong(at, "not YAML: %s", strings.TrimSpace(what))
}
