package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

// The validator's own messages name a JSON pointer and a pattern. Those here name the line, its text and what is
// allowed.

// place is where in the file a mistake is.
type place struct {
	name string // of the nearest member above, or of the whole
	key  *yaml.Node
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
		here.key, here.node = key, value
		if key != nil {
			here.name = key.Value
		}
	}
	return here
}

// explain reports the mistakes that the validator found.
func (p *parser) explain(e *jsonschema.ValidationError) {
	at, k := p.at(e.InstanceLocation...), keywordsAt(e.SchemaURL)
	title, known := cmp.Or(k.Title, at.name), memberNames(&k.Properties)
	switch {
	case at.node.Kind == yaml.AliasNode:
		p.wrong(at.node, "aliases (*%s) are not allowed: write the value itself", at.node.Value)
		return
	case at.key != nil && at.node.ShortTag() == "!!null":
		p.wrong(at.key, "%s has no value: give one, or leave the member out", at.name)
		return
	case k.ErrorMessage != "":
		p.unlike(at, k.ErrorMessage)
		return
	}
	switch cause := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range cause.Missing {
			p.wrong(at.node, "%s needs the member %s", title, name)
		}
	case *kind.AdditionalProperties:
		for _, name := range cause.Properties {
			p.unknown(at.node, title, name, known)
		}
	case *kind.MinItems, *kind.MaxItems:
		p.wrong(at.node, "%s must have %d to %d elements, not %d", at.name, k.MinItems, k.MaxItems, len(at.node.Content))
	case *kind.UniqueItems:
		again := at.node.Content[cause.Duplicates[1]]
		p.wrong(again, "%s has %s twice: give it an entry with more weight instead", at.name, again.Value)
	case *kind.Type: // a mapping or a list: scalars have messages
		switch {
		case k.Type == "array":
			p.unlike(at, "must be a list")
		case at.node.Kind == yaml.MappingNode:
			p.wrong(at.node, "%s has %d members; allowed: %s", title, len(at.node.Content)/2, strings.Join(known, ", "))
		default:
			p.wrong(at.node, "%s must have members (%s), not %s", title, strings.Join(known, ", "), shown(at.node))
		}
	case *kind.Enum:
		p.unnamed(at, k)
	default:
		for _, cause := range e.Causes {
			p.explain(cause)
		}
	}
}

// unlike reports a value that breaks a rule, or a rule that speaks for itself.
func (p *parser) unlike(at place, rule string) {
	if !strings.HasPrefix(rule, "must ") {
		p.wrong(at.node, "%s", rule)
		return
	}
	rule, advice, found := strings.Cut(rule, ";")
	if found {
		advice = ";" + advice
	}
	p.wrong(at.node, "%s %s, not %s%s", at.name, rule, shown(at.node), advice)
}

// unknown reports a member that the schema does not know; name is its name among memberNames.
func (p *parser) unknown(n *yaml.Node, title, name string, known []string) {
	key, _ := child(n, name)
	allowed := fmt.Sprintf("allowed in %s: %s", title, strings.Join(known, ", "))
	switch _, first := child(n, key.Value); {
	case key.Kind != yaml.ScalarNode:
		p.wrong(key, "names of members must be plain text, not %s; %s", shown(key), allowed)
	case slices.Contains(known, key.Value):
		p.wrong(key, "%s has %q twice, first in line %d", title, key.Value, first.Line)
	default:
		p.wrong(key, "unknown member %s%s %s", shown(key), cmp.Or(suggest(key.Value, known), ";"), allowed)
	}
}

// unnamed reports what is none of the allowed names. Of many, which have a title, it suggests the nearest.
func (p *parser) unnamed(at place, k keywords) {
	near, _ := nearest(at.node.Value, k.Enum)
	hint := cmp.Or(k.Hint, "allowed: "+oneOf(k.Enum))
	switch {
	case k.Title == "":
		p.unlike(at, "must be "+oneOf(k.Enum))
	case at.node.ShortTag() != "!!str":
		p.wrong(at.node, "%s: must be the name of a %s (%s), not %s", at.name, k.Title, hint, shown(at.node))
	default:
		p.wrong(at.node, "%s: unknown %s %s, the nearest is %s; %s", at.name, k.Title, shown(at.node), near, hint)
	}
}

func oneOf(allowed []string) string {
	last := len(allowed) - 1
	return strings.Join(allowed[:last], ", ") + " or " + allowed[last]
}

const longestShown = 40

// shown is a node as a mistake quotes it: short, whatever the file has.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	text := []rune(n.Value[:min(len(n.Value), 4*longestShown)])
	if len(text) > longestShown {
		text = append(text[:longestShown], '…')
	}
	switch {
	case n.ShortTag() == "!!null":
		return "nothing"
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return fmt.Sprintf("the text %q", string(text))
	}
	return fmt.Sprintf("%q", string(text))
}
