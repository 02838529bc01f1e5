package main

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// index returns -1 if there is no such member.
func index(n *yaml.Node, name string) int {
	for i := 1; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i-1].Value == name {
			return i
		}
	}
	return -1
}

func get(n *yaml.Node, name string) *yaml.Node {
	if i := index(n, name); i > 0 {
		return n.Content[i]
	}
	return nil
}

func set(n, name, value *yaml.Node) {
	if i := index(n, name.Value); i > 0 {
		n.Content[i] = value
		return
	}
	n.Content = append(n.Content, name, value)
}

func remove(n *yaml.Node, name string) *yaml.Node {
	value := get(n, name)
	if i := index(n, name); i > 0 {
		n.Content = slices.Delete(n.Content, i-1, i+1)
	}
	return value
}

func values(n *yaml.Node) (all []*yaml.Node) {
	if n != nil && n.Kind == yaml.MappingNode {
		for pair := range slices.Chunk(n.Content, 2) {
			all = append(all, pair[1])
		}
	}
	return all
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func reference(section, name string) *yaml.Node {
	to := &yaml.Node{Kind: yaml.ScalarNode, Value: "#/components/" + section + "/" + name, Style: yaml.DoubleQuotedStyle}
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{scalar("$ref"), to}}
}

// expand returns a copy in which aliases and merges are resolved. If a mapping already has a member, a merged member of the same name is
// ignored.
func expand(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	c := *n
	c.Anchor, c.Content = "", nil
	for i, part := range n.Content {
		switch {
		case n.Kind != yaml.MappingNode:
			c.Content = append(c.Content, expand(part))
		case i%2 == 1 && n.Content[i-1].Tag == "!!merge":
			for pair := range slices.Chunk(expand(part).Content, 2) {
				if get(&c, pair[0].Value) == nil {
					set(&c, pair[0], pair[1])
				}
			}
		case i%2 == 1:
			set(&c, n.Content[i-1], expand(part))
		}
	}
	return &c
}

// merge adds the members of `part` to `into`, also in nested mappings. If both nodes define a member, merge returns the member's path;
// otherwise "".
func merge(into, part *yaml.Node) string {
	for pair := range slices.Chunk(part.Content, 2) {
		name, value := pair[0], pair[1]
		if there := get(into, name.Value); there == nil {
			into.Content = append(into.Content, name, value)
		} else if there.Kind != yaml.MappingNode || value.Kind != yaml.MappingNode {
			return name.Value
		} else if twice := merge(there, value); twice != "" {
			return name.Value + "/" + twice
		}
	}
	return ""
}
