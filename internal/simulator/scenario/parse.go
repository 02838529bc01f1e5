package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxMistakes limits the reported mistakes of a file.
const maxMistakes = 20

// Parse parses a scenario; file is named in its mistakes, and the default name comes from it. The error has a line for each mistake: its
// place, the mistake, and the allowed values.
func Parse(file string, text []byte) (*Scenario, error) {
	p := &parser{file: file}
	s := defaults(file)
	s.Text = string(text)
	if p.read(text) && p.validate() {
		if err := p.root.Decode(s); err != nil {
			p.wrong(p.root, "%v", err)
		}
		p.check(s)
	}
	return s, p.err()
}

// parser collects all mistakes of a file, to report them at once.
type parser struct {
	file  string
	root  *yaml.Node
	value any // the same for the validator
	found []mistake
}

type mistake struct {
	line, column int
	what         string
}

func (p *parser) wrong(at *yaml.Node, format string, args ...any) {
	p.found = append(p.found, mistake{max(at.Line, 1), max(at.Column, 1), fmt.Sprintf(format, args...)})
}

// err returns the mistakes in the file's order; nil if there are none.
func (p *parser) err() error {
	slices.SortStableFunc(p.found, func(a, b mistake) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	p.found = slices.Compact(p.found)
	var errs []error
	for _, m := range p.found[:min(len(p.found), maxMistakes)] {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", p.file, m.line, m.column, m.what))
	}
	if more := len(p.found) - maxMistakes; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more mistakes", more))
	}
	return errors.Join(errs...)
}

var yamlError = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s*)?(?:line ([0-9]+)(?:, column ([0-9]+))?: )?((?s).*)$`)

// read parses the file's only document and reports whether it could.
func (p *parser) read(text []byte) bool {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(text) > maxFile {
		p.wrong(start, "the file is too large: a scenario has at most %d bytes", maxFile)
		return false
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := reader.Decode(&document)
	if errors.Is(err, io.EOF) || err == nil && (len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null") {
		p.wrong(start, "the file is empty: a scenario needs at least duration or jobs, arrival and mix")
		return false
	}
	if err == nil {
		p.root = document.Content[0]
		if large := tooLarge(p.root); large != nil { // the library would take minutes to look for repeated members
			p.wrong(large, "there are more than %d entries", mostEntries)
			return false
		}
		err = p.root.Decode(&p.value)
	}
	if err == nil {
		if err = reader.Decode(&second); errors.Is(err, io.EOF) {
			return true
		}
	}
	if err != nil { // the library has the place only as text
		parts := yamlError.FindStringSubmatch(err.Error())
		if parts == nil {
			parts = []string{"", "", "", err.Error()}
		}
		start.Line, _ = strconv.Atoi(parts[1])
		start.Column, _ = strconv.Atoi(parts[2])
		p.wrong(start, "not YAML: %.200s", strings.TrimSpace(parts[3]))
	} else {
		p.wrong(&second, "a second document starts here: a file contains one scenario")
	}
	return false
}

// mostEntries bounds the members of a mapping and the elements of a list.
const mostEntries = 100

// tooLarge returns a mapping or a list with too many entries, nil if there is none.
func tooLarge(n *yaml.Node) *yaml.Node {
	if len(n.Content) > 2*mostEntries {
		return n
	}
	for _, child := range n.Content {
		if large := tooLarge(child); large != nil {
			return large
		}
	}
	return nil
}

// validate compares the file with the schema and reports whether it has no mistake.
func (p *parser) validate() bool {
	err := compiled().Validate(p.value)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		p.explain(invalid)
	} else if err != nil {
		p.wrong(p.root, "%v", err)
	}
	return len(p.found) == 0
}

var english = message.NewPrinter(language.English)

// explain reports the validator's mistakes: in the words of the schema, or else in its own. The validator names a JSON pointer; explain
// shows the line and its text.
func (p *parser) explain(e *jsonschema.ValidationError) {
	name, at := p.at(e.InstanceLocation...)
	k := keywordsAt(e.SchemaURL)
	switch cause := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, unknown := range cause.Properties[:min(len(cause.Properties), maxMistakes)] {
			if key, _ := child(at, unknown); key != nil { // otherwise an alias has it
				known := strings.Join(memberNames(&k.Properties), ", ")
				p.wrong(key, "unknown member %s; allowed in %s: %s", shown(key), cmp.Or(k.Title, name), known)
			}
		}
		return
	case *kind.Enum:
		p.wrong(at, "%s must be one of %s, not %s", name, strings.Join(k.Enum, ", "), shown(at))
		return
	}
	switch {
	case strings.HasPrefix(k.ErrorMessage, "must "):
		p.wrong(at, "%s %s, not %s", name, k.ErrorMessage, shown(at))
	case k.ErrorMessage != "":
		p.wrong(at, "%s", k.ErrorMessage)
	case len(e.Causes) > 0:
		for _, cause := range e.Causes {
			p.explain(cause)
		}
	default:
		p.wrong(at, "%s: %s", cmp.Or(k.Title, name), e.ErrorKind.LocalizedString(english))
	}
}

// at follows a path of members and indexes as far as the file has it. name is the nearest member's.
func (p *parser) at(path ...string) (name string, node *yaml.Node) {
	name, node = "a scenario", p.root
	for _, token := range path {
		key, value := child(node, token)
		if value == nil {
			break
		}
		if node = value; key != nil {
			name = key.Value
		}
	}
	return name, node
}

// memberNames returns the members of a mapping.
func memberNames(n *yaml.Node) (names []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		names = append(names, n.Content[i].Value)
	}
	return names
}

// shown returns a short quotation of a node for a mistake.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias"}[n.Kind]
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return fmt.Sprintf("the text %.40q", n.Value)
	}
	return fmt.Sprintf("%.40q", n.Value)
}
