package scenario

import (
	"bytes"
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of scenario files. Besides the standard keywords it has minDuration and maxDuration, which
// limit a duration or a range, and errorMessage, which mistakes quote.
func Schema() []byte { return slices.Clone(schema) }

// compiled is the schema, ready to validate.
var compiled = sync.OnceValue(func() *jsonschema.Schema {
	const schemaURL = "file:///scenario.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		panic(err) // the schema is embedded
	}
	c := jsonschema.NewCompiler()
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "file:///durations", Compile: compileBounds})
	c.AssertVocabs()
	if err := c.AddResource(schemaURL, document); err != nil {
		panic(err)
	}
	return c.MustCompile(schemaURL)
})

// bounds are the keywords minDuration and maxDuration.
type bounds Range

func compileBounds(_ *jsonschema.CompilerContext, keywords map[string]any) (jsonschema.SchemaExt, error) {
	low, isBounded := keywords["minDuration"].(string)
	if !isBounded {
		return nil, nil
	}
	high, _ := keywords["maxDuration"].(string)
	r, err := parseRange(low + ".." + high)
	return bounds(r), err
}

func (b bounds) Validate(ctx *jsonschema.ValidatorContext, value any) {
	text, _ := value.(string)
	if r, err := parseRange(text); err != nil || r.Min < b.Min || r.Max > b.Max || r.Min > r.Max {
		ctx.AddError(&kind.Format{Got: value, Want: "duration"})
	}
}

// keywords are the keywords of a subschema that mistakes quote.
type keywords struct {
	Title        string
	Properties   map[string]yaml.Node
	Enum         []string
	ErrorMessage string `yaml:"errorMessage"`
}

// schemaTree is the schema as YAML, a superset of JSON.
var schemaTree = sync.OnceValue(func() *yaml.Node {
	var document yaml.Node
	if err := yaml.Unmarshal(schema, &document); err != nil {
		panic(err) // the schema is embedded
	}
	return document.Content[0]
})

// keywordsAt returns the subschema at a URL with a JSON pointer as its fragment.
func keywordsAt(url string) (k keywords) {
	n := schemaTree()
	_, pointer, _ := strings.Cut(url, "#")
	for _, token := range strings.Split(pointer, "/")[1:] {
		_, n = child(n, token)
	}
	if err := n.Decode(&k); err != nil {
		panic(err) // the schema is embedded
	}
	return k
}

// workKinds returns ALL and the catalogue of the specification, section 6, in order.
func workKinds() []string { return keywordsAt("#/$defs/kind").Enum }
