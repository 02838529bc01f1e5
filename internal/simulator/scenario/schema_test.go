package scenario_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(scenario.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.AddResource("scenario.schema.json", document))
	s, err := c.Compile("scenario.schema.json")
	require.NoError(t, err)
	return s
}

// instance is a YAML text as an editor's validator sees it.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	require.NoError(t, yaml.Unmarshal(text, &value))
	asJSON, err := json.Marshal(value)
	require.NoError(t, err)
	value, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	return value
}

func TestReadyMadeScenariosFollowTheSchema(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for _, name := range scenario.Names() {
		text, err := scenario.Text(name)
		require.NoError(t, err)
		require.NoError(t, schema.Validate(instance(t, text)), name)
	}
	require.NoError(t, schema.Validate(instance(t, []byte(mixed))))
}

type object struct {
	Type        any                `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*object `json:"properties"`
	Items       *object            `json:"items"`
	Ref         string             `json:"$ref"`
	Defs        map[string]*object `json:"$defs"`
}

func schemaRoot(t *testing.T) *object {
	t.Helper()
	var root object
	require.NoError(t, json.Unmarshal(scenario.Schema(), &root))
	return &root
}

// walk calls fn with each member of the schema, by its path.
func (root *object) walk(fn func(path string, member *object)) {
	var look func(path string, o *object)
	look = func(path string, o *object) {
		if o.Items != nil {
			o = o.Items
		}
		if o.Ref != "" {
			o = root.Defs[strings.TrimPrefix(o.Ref, "#/$defs/")]
		}
		for name, p := range o.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			fn(at, p)
			look(at, p)
		}
	}
	look("", root)
}
