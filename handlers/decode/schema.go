package decode

import (
	_ "embed" // the schemas
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

//go:generate go run -C ../../tools ./apitypes ../handlers/decode/requests.yaml

var (
	//go:embed client.json
	clientSchemas []byte
	//go:embed operator.json
	operatorSchemas []byte

	public = load(clientSchemas)
	// Operator decodes the bodies of the operator API.
	Operator = load(operatorSchemas)
)

// Schemas has the schemas of an API's request bodies by name.
type Schemas struct{ named func() map[string]*schema }

// load returns schemas that are parsed on first use.
func load(text []byte) *Schemas {
	return &Schemas{sync.OnceValue(func() (all map[string]*schema) {
		if err := json.Unmarshal(text, &all); err != nil {
			panic(err) // cannot fail: a test loads the schemas
		}
		for _, s := range all {
			s.prepare("", 0)
		}
		return all
	})}
}

// schema has the JSON Schema keywords that request bodies use, and the extensions of requests.yaml.
type schema struct {
	Type             []string
	Enum             []string
	Properties       map[string]*schema
	Required         []string
	Open             bool `json:"additionalProperties"`
	Items            *schema
	MinProperties    int
	MinItems         int
	MaxItems         int
	MinLength        int
	MaxLength        int
	Minimum          *float64
	Maximum          *float64
	ExclusiveMinimum *float64
	Format           string
	Pattern          string
	Shortest         string `json:"x-minimum"` // minimum of durations
	Longest          string `json:"x-maximum"`
	Step             string `json:"x-step"`
	Note             string `json:"x-note"`
	Refusal          string `json:"x-refusal"`
	Raw              bool   `json:"x-raw"`
	Malformed        string `json:"x-malformed"`
	Names            string `json:"x-names"`

	name      string
	index     int    // number of this property in its object: bit 1<<index says whether a body has the property
	kinds     string // allowed jsontext.Kinds, one byte each
	isInteger bool
	form      form
	names     *regexp.Regexp // matches the allowed names that are not in Properties
}

var kindsOf = map[string]string{"string": `"`, "object": "{", "array": "[", "boolean": "tf", "integer": "0", "number": "0", "null": "n"}

func (s *schema) prepare(name string, index int) {
	s.name, s.index, s.isInteger = name, index, slices.Contains(s.Type, "integer")
	for _, t := range s.Type {
		s.kinds += kindsOf[t]
	}
	if s.Type == nil { // any value
		s.kinds, s.Open = strings.Join(slices.Collect(maps.Values(kindsOf)), ""), true
	}
	if s.Names != "" {
		s.names = regexp.MustCompile(s.Names)
	}
	s.form = s.textForm()
	for i, name := range slices.Sorted(maps.Keys(s.Properties)) {
		s.Properties[name].prepare(name, i)
	}
	if s.Items != nil {
		s.Items.prepare("", 0)
	}
}

func (s *schema) allows(kind jsontext.Kind) bool { return strings.IndexByte(s.kinds, byte(kind)) >= 0 }
