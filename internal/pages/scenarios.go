package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// member is what the table of members takes from a JSON Schema.
type member struct {
	Description string
	Default     string
	Required    []string
	Properties  yaml.Node // in the schema's order
	Items       *member
	Ref         string             `yaml:"$ref"`
	Defs        map[string]*member `yaml:"$defs"`
}

const (
	membersBegin = "<!-- made from internal/simulator/scenario/schema.json -->\n"
	membersEnd   = "<!-- end -->\n"
)

// listMembers writes the table of members between its two comments.
func listMembers(page string, schema []byte) (string, error) {
	var root member
	if err := yaml.Unmarshal(schema, &root); err != nil {
		return "", err
	}
	before, after, hasBegin := strings.Cut(page, membersBegin)
	_, after, hasEnd := strings.Cut(after, membersEnd)
	if !hasBegin || !hasEnd {
		return "", errors.New("the comments around the table of members are missing")
	}
	rows, err := root.rows("", &root)
	return before + membersBegin + "\n| member | meaning |\n|---|---|\n" + rows + "\n" + membersEnd + after, err
}

// rows are those of the members of m and below, whose names begin with prefix.
func (root *member) rows(prefix string, m *member) (rows string, err error) {
	if m.Items != nil {
		m = m.Items
	}
	if m.Ref != "" {
		m = root.Defs[strings.TrimPrefix(m.Ref, "#/$defs/")]
	}
	for i := 0; i < len(m.Properties.Content); i += 2 {
		var below member
		name := m.Properties.Content[i].Value
		if err := m.Properties.Content[i+1].Decode(&below); err != nil {
			return "", err
		}
		if prefix == "service.env." {
			return "", nil // settings are described with the service's configuration
		}
		meaning := below.Description
		if slices.Contains(m.Required, name) {
			meaning = "Required. " + meaning
		}
		if below.Default != "" {
			meaning += " Default: " + below.Default + "."
		}
		inside, err := root.rows(prefix+name+".", &below)
		if err != nil {
			return "", err
		}
		rows += fmt.Sprintf("| `%s` | %s |\n", prefix+name, meaning) + inside
	}
	return rows, nil
}
