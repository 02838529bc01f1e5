package handlers

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/docs"
)

// scalars calls visit with every value of a document that has no parts: the
// value, the names that lead to it, and what it stands in.
func scalars(in *yaml.Node, names []string, visit func(value, in *yaml.Node, names []string)) {
	for i, value := range in.Content {
		inner := names
		if in.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue
			}
			inner = append(slices.Clone(names), in.Content[i-1].Value)
		}
		if value.Kind == yaml.ScalarNode {
			visit(value, in, inner)
		}
		scalars(value, inner, visit)
	}
}

// TestNoTextOfTheDocumentsBrokeAtAComma: within braces and brackets a text
// without quotes ends at its first comma, and what follows is a member without a
// value, or an entry of its own. A " #" ends any text without quotes: it is then
// not a sentence.
func TestNoTextOfTheDocumentsBrokeAtAComma(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"openapi": docs.OpenAPI, "asyncapi": docs.AsyncAPI} {
		var root yaml.Node
		require.NoError(t, yaml.Unmarshal(text, &root))
		sentences := 0
		scalars(root.Content[0], nil, func(value, in *yaml.Node, names []string) {
			last := names[len(names)-1]
			quoted := value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
			require.True(t, quoted || value.Value != "", "%s, line %d: %q has no value", name, value.Line, last)
			if in.Kind == yaml.SequenceNode && in.Style&yaml.FlowStyle != 0 && !quoted {
				require.NotContains(t, value.Value, " ", "%s, line %d: quote it", name, value.Line)
			}
			example := slices.ContainsFunc(names, func(n string) bool { return n == "value" || n == "examples" || n == "example" })
			if last == "description" && !example || slices.Contains(names, "x-enumDescriptions") {
				require.Regexp(t, `[.!?]\s*$`, value.Value, "%s, line %d: not a whole sentence", name, value.Line)
				sentences++
			}
		})
		require.Greater(t, sentences, 50, name)
	}
}

// TestSchemasSuitGenerators: programs that make types of schemas ignore members
// beside a $ref, cannot follow one into the middle of a schema, and take an
// object of which nothing is said for one without members.
func TestSchemasSuitGenerators(t *testing.T) {
	t.Parallel()
	for name, text := range map[string][]byte{"openapi": docs.OpenAPI, "asyncapi": docs.AsyncAPI} {
		each(treeOf(t, text), "", func(at string, o tree) {
			if ref, ok := o["$ref"].(string); ok {
				require.Len(t, o, 1, "%s: say it with allOf: %s", name, at)
				require.False(t, strings.Contains(ref, "/schemas/") && strings.Count(ref, "/") != 3, "%s: %s at %s", name, ref, at)
			}
			kinds := append(o.texts("type"), "")
			if kind, ok := o["type"].(string); ok {
				kinds[0] = kind
			}
			if slices.Contains(kinds, "object") && o["properties"] == nil {
				require.Contains(t, o, "additionalProperties", "%s: %s", name, at)
			}
		})
	}
}
