package scenario_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

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
