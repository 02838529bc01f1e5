package main

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// index is where a mapping has the value of a member, or -1.
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

// set replaces a member, or adds it at the end.
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

func values(n *yaml.Node) []*yaml.Node {
	var all []*yaml.Node
	for i := 1; n != nil && n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		all = append(all, n.Content[i])
	}
	return all
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func reference(section, name string) *yaml.Node {
	to := &yaml.Node{Kind: yaml.ScalarNode, Value: "#/components/" + section + "/" + name, Style: yaml.DoubleQuotedStyle}
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{scalar("$ref"), to}}
}

// expand returns a copy in which aliases and merges are resolved. Members that follow a merge replace the merged ones.
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
			c.Content = append(c.Content, expand(part).Content...)
		case i%2 == 1:
			set(&c, n.Content[i-1], expand(part))
		}
	}
	return &c
}

// merge adds the members of a part, and of its mappings. It returns the name of one that is there already.
func merge(into, part *yaml.Node) string {
	for i := 1; i < len(part.Content); i += 2 {
		name, value := part.Content[i-1], part.Content[i]
		there := get(into, name.Value)
		switch {
		case there == nil:
			into.Content = append(into.Content, name, value)
		case there.Kind != yaml.MappingNode || value.Kind != yaml.MappingNode:
			return name.Value
		default:
			if twice := merge(there, value); twice != "" {
				return name.Value + "/" + twice
			}
		}
	}
	return ""
}
