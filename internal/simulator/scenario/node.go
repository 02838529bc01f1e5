package scenario

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder reads nodes and collects what is wrong with them. A member with a
// mistake keeps its default, and reading goes on, so that one look shows all.
type decoder struct {
	file  string
	found []Mistake
}

func (d *decoder) wrong(at *yaml.Node, format string, args ...any) {
	d.found = append(d.found, Mistake{d.file, max(at.Line, 1), max(at.Column, 1), fmt.Sprintf(format, args...)})
}

// read takes the value of the member of that name.
type read func(name string, value *yaml.Node)

type member struct {
	name string
	read read
}

// given are the nodes of a mapping's members that are there, by name, and of
// the mapping itself.
type given struct {
	node    *yaml.Node
	members map[string]*yaml.Node
}

func (g given) has(name string) bool { return g.members[name] != nil }

// of is where to complain about a member: at its value, or at the mapping.
func (g given) of(name string) *yaml.Node {
	if n := g.members[name]; n != nil {
		return n
	}
	return g.node
}

// mapping reads the members of a mapping. title names the mapping in mistakes.
func (d *decoder) mapping(title string, n *yaml.Node, known ...member) given {
	g := given{node: n, members: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		d.wrong(n, "%s must have members (%s), not %s", title, names(known), shown(n))
		return g
	}
	if members := len(n.Content) / 2; members > mostEntries { // many would take long to complain about
		d.wrong(n, "%s has %d members; allowed: %s", title, members, names(known))
		return g
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		m, ok := d.find(title, key, known)
		switch {
		case !ok:
		case g.has(m.name):
			d.wrong(key, "%s has %q twice, first in line %d", title, m.name, g.members[m.name].Line)
		case value.Kind == yaml.AliasNode:
			g.members[m.name] = value
			d.wrong(value, "aliases (*%s) are not allowed: write the value itself", value.Value)
		case value.ShortTag() == "!!null":
			g.members[m.name] = value
			d.wrong(key, "%s has no value: give one, or leave the member out", m.name)
		default:
			g.members[m.name] = value
			m.read(m.name, value)
		}
	}
	return g
}

func (d *decoder) find(title string, key *yaml.Node, known []member) (member, bool) {
	for _, m := range known {
		if key.Kind == yaml.ScalarNode && key.Value == m.name {
			return m, true
		}
	}
	if key.Kind != yaml.ScalarNode {
		d.wrong(key, "names of members must be plain text, not %s; allowed in %s: %s", shown(key), title, names(known))
		return member{}, false
	}
	d.wrong(key, "unknown member %s%s allowed in %s: %s", shown(key), cmp.Or(suggest(key.Value, namesOf(known)), ";"), title, names(known))
	return member{}, false
}

func names(known []member) string { return strings.Join(namesOf(known), ", ") }

func namesOf(known []member) []string {
	all := make([]string, len(known))
	for i, m := range known {
		all[i] = m.name
	}
	return all
}

// require complains about members that are not there.
func (d *decoder) require(g given, title string, names ...string) {
	for _, name := range names {
		if g.node.Kind == yaml.MappingNode && !g.has(name) {
			d.wrong(g.node, "%s needs the member %s", title, name)
		}
	}
}

// list reads the elements of a list that has one to most of them.
func (d *decoder) list(name string, n *yaml.Node, most int, element func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		d.wrong(n, "%s must be a list, not %s", name, shown(n))
		return
	}
	if len(n.Content) == 0 || len(n.Content) > most {
		d.wrong(n, "%s must have 1 to %d elements, not %d", name, most, len(n.Content))
		return
	}
	for _, e := range n.Content {
		if e.Kind == yaml.AliasNode {
			d.wrong(e, "aliases (*%s) are not allowed: write the value itself", e.Value)
			continue
		}
		element(e)
	}
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
