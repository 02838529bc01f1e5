package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// maxMistakes is how many mistakes of a file are reported.
const maxMistakes = 20

// Mistake is one thing that is wrong in a scenario, and where. Lines and columns count from 1.
type Mistake struct {
	File         string
	Line, Column int
	What         string // what is wrong, and what is allowed
}

func (m Mistake) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.What)
}

// InvalidError says what is wrong in a scenario, in the file's order.
type InvalidError struct {
	Mistakes []Mistake // at least one, at most 20
	More     int       // how many there are besides
}

// Error has a line for each mistake.
func (e *InvalidError) Error() string {
	var lines []string
	for _, m := range e.Mistakes {
		lines = append(lines, m.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d mistakes more", e.More))
	}
	return strings.Join(lines, "\n")
}

func invalid(found []Mistake) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b Mistake) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	found = slices.Compact(found)
	reported := min(len(found), maxMistakes)
	return &InvalidError{Mistakes: found[:reported], More: len(found) - reported}
}

var english = message.NewPrinter(language.English)

// explain reports the mistakes that the validator found: in the words of the schema, or else in its own. Those name a JSON
// pointer; here it is the line and its text.
func (p *parser) explain(e *jsonschema.ValidationError) {
	at, k := p.at(e.InstanceLocation...), keywordsAt(e.SchemaURL)
	if at.node.Kind == yaml.AliasNode || at.node.ShortTag() == "!!null" {
		return // was reported
	}
	switch cause := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range cause.Properties {
			key, _ := child(at.node, name)
			known := memberNames(&k.Properties)
			p.wrong(key, "unknown member %s; allowed in %s: %s", shown(key), cmp.Or(k.Title, at.name), strings.Join(known, ", "))
		}
		return
	case *kind.Enum:
		p.wrong(at.node, "%s must be one of %s, not %s", at.name, strings.Join(k.Enum, ", "), shown(at.node))
		return
	}
	switch {
	case strings.HasPrefix(k.ErrorMessage, "must "):
		p.wrong(at.node, "%s %s, not %s", at.name, k.ErrorMessage, shown(at.node))
	case k.ErrorMessage != "":
		p.wrong(at.node, "%s", k.ErrorMessage)
	case len(e.Causes) > 0:
		for _, cause := range e.Causes {
			p.explain(cause)
		}
	default:
		p.also(at.node, "%s: %s", cmp.Or(k.Title, at.name), e.ErrorKind.LocalizedString(english))
	}
}

// shown is a node as a mistake quotes it: short, whatever the file has.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias"}[n.Kind]
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return fmt.Sprintf("the text %.40q", n.Value)
	}
	return fmt.Sprintf("%.40q", n.Value)
}
