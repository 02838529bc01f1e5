package main

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a part of the OpenAPI document. The zero node is an absent part.
type node struct{ *yaml.Node }

type member struct {
	name  string
	value node
}

func (n node) exists() bool { return n.Node != nil }

func (n node) text() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// members returns the members of an object in document order.
func (n node) members() (all []member) {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		all = append(all, member{n.Content[i].Value, node{n.Content[i+1]}})
	}
	return all
}

func (n node) get(name string) node {
	for _, m := range n.members() {
		if m.name == name {
			return m.value
		}
	}
	return node{}
}

// list returns the entries of an array. Any other value counts as an array with one entry.
func (n node) list() (all []node) {
	switch {
	case n.Node == nil:
		return nil
	case n.Kind == yaml.SequenceNode:
		for _, entry := range n.Content {
			all = append(all, node{entry})
		}
		return all
	}
	return []node{n}
}

func (n node) ref() string {
	return strings.TrimPrefix(n.get("$ref").text(), "#/components/schemas/")
}
