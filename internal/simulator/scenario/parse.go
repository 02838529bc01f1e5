package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
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
	s.Text = string(text)
	if err := invalid(p.found); err != nil {
		return nil, err
	}
	return s, nil
}

// parser collects what is wrong with a file, so that all of it is reported at once.
type parser struct {
	file  string
	root  *yaml.Node
	found []Mistake
}

func (p *parser) wrong(at *yaml.Node, format string, args ...any) {
	p.found = append(p.found, Mistake{p.file, max(at.Line, 1), max(at.Column, 1), fmt.Sprintf(format, args...)})
}

// also reports a mistake where there is none yet.
func (p *parser) also(at *yaml.Node, format string, args ...any) {
	if !slices.ContainsFunc(p.found, func(m Mistake) bool { return m.Line == at.Line && m.Column == at.Column }) {
		p.wrong(at, format, args...)
	}
}

// scenario validates and decodes the file. The checks beyond the schema are made on a bad file too, unless it has what
// would be decoded to something else.
func (p *parser) scenario(s *Scenario) {
	value := p.value(p.root)
	plain := len(p.found) == 0
	var mistakes *jsonschema.ValidationError
	if errors.As(compiled().Validate(value), &mistakes) {
		if p.explain(mistakes); len(p.found) == 0 {
			p.wrong(p.root, "%v", mistakes) // no keyword of the schema is without a message today
		}
	}
	if plain {
		if err := p.root.Decode(s); err != nil && len(p.found) == 0 {
			p.wrong(p.root, "%v", err)
		}
		p.check(s)
	}
}

// value is a node as the validator wants it. It reports what YAML knows and a scenario has no use for: the library would
// resolve aliases and merge keys, and refuse repeated members without a place.
func (p *parser) value(n *yaml.Node) any {
	if len(n.Content) > 2*mostEntries {
		p.wrong(n, "there are more than %d entries", mostEntries)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		members := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			switch _, twice := members[key.Value]; {
			case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge":
				p.wrong(key, "names of members must be plain text, not %s", shown(key))
				continue
			case twice:
				p.wrong(key, "%q is there twice", key.Value)
			case value.ShortTag() == "!!null":
				p.wrong(key, "%s has no value: give one, or leave the member out", key.Value)
			}
			members[key.Value] = p.value(value)
		}
		return members
	case yaml.SequenceNode:
		elements := []any{}
		for _, e := range n.Content {
			elements = append(elements, p.value(e))
			if e.Kind != n.Content[0].Kind {
				p.wrong(e, "the elements of a list must be alike, not %s after %s", shown(e), shown(n.Content[0]))
			}
		}
		return elements
	case yaml.AliasNode:
		p.wrong(n, "aliases (*%s) are not allowed: write the value itself", n.Value)
		return nil
	}
	var v any
	if n.Decode(&v) != nil {
		return nil
	}
	return v
}

// place is where in the file something is.
type place struct {
	name string // of the nearest member above, or of the whole
	node *yaml.Node
}

// at follows a path of members and indexes as far as the file has it.
func (p *parser) at(path ...string) place {
	here := place{name: "a scenario", node: p.root}
	for _, token := range path {
		key, value := child(here.node, token)
		if value == nil {
			break
		}
		if here.node = value; key != nil {
			here.name = key.Value
		}
	}
	return here
}

// memberNames names the members of a mapping.
func memberNames(n *yaml.Node) (names []string) {
	for i := 0; i < len(n.Content); i += 2 {
		names = append(names, n.Content[i].Value)
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
	if errors.Is(err, io.EOF) || err == nil && (len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null") {
		p.wrong(start, "the file is empty: a scenario needs at least duration or jobs, arrival and mix")
		return nil
	}
	if err == nil {
		if err = reader.Decode(&second); errors.Is(err, io.EOF) {
			return document.Content[0]
		}
	}
	if err != nil {
		p.notYAML(err)
	} else {
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
