package scenario

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Parse parses a scenario. `file` is the name of the file, for messages and as the default name of the scenario. The error lists all
// mistakes, one per line, with their positions and the allowed values.
func Parse(file string, text []byte) (*Scenario, error) {
	p := &parser{file: file}
	value, err := p.read(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %.300s", file, err.Error()) // cut the error, because the YAML library quotes whole values
	}
	err = compiled().Validate(value)
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		p.explain(invalid)
		return nil, p.err()
	}
	s := defaults(file)
	s.Text = string(text)
	if err = cmp.Or(err, p.root.Decode(s)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p.check(s)
	return s, p.err()
}

// parser collects all mistakes of a file to report them together.
type parser struct {
	file  string
	root  *yaml.Node
	found []mistake
}

type mistake struct {
	line, column int
	what         string
}

func (p *parser) wrong(at *yaml.Node, format string, args ...any) {
	p.found = append(p.found, mistake{at.Line, at.Column, fmt.Sprintf(format, args...)})
}

func (p *parser) err() error {
	slices.SortStableFunc(p.found, func(a, b mistake) int { return cmp.Or(a.line-b.line, a.column-b.column) })
	var errs []error
	for _, m := range slices.Compact(p.found) {
		errs = append(errs, fmt.Errorf("%s:%d:%d: %s", p.file, m.line, m.column, m.what))
	}
	return errors.Join(errs...)
}

func (p *parser) read(text []byte) (value any, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("a scenario has at most %d bytes", maxFile)
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err = reader.Decode(&document); err == nil {
		if tooLarge(&document) { // in a huge mapping, the YAML library would search for repeated members for minutes
			return nil, fmt.Errorf("a mapping or list has more than %d entries", mostEntries)
		}
		err = document.Decode(&value)
	}
	switch {
	case errors.Is(err, io.EOF), err == nil && value == nil:
		return nil, errors.New("the file is empty: a scenario needs at least arrival, mix, and duration or jobs")
	case err != nil:
		return nil, err
	case !errors.Is(reader.Decode(&yaml.Node{}), io.EOF):
		return nil, errors.New("a file must contain only one scenario, but this one continues after ---")
	}
	p.root = document.Content[0]
	return value, nil
}

// mostEntries limits the members of a mapping and the elements of a list.
const mostEntries = 100

func tooLarge(n *yaml.Node) bool {
	return len(n.Content) > 2*mostEntries || slices.ContainsFunc(n.Content, tooLarge)
}

var english = message.NewPrinter(language.English)

// explain reports the mistakes that the validator found. An errorMessage in the schema replaces the validator's text.
func (p *parser) explain(e *jsonschema.ValidationError) {
	name, at := p.at(e.InstanceLocation...)
	k := keywordsAt(e.SchemaURL)
	switch cause := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, unknown := range cause.Properties {
			if key, _ := child(at, unknown); key != nil { // nil if the member comes from a YAML alias, which has no line of its own
				known := strings.Join(slices.Sorted(maps.Keys(k.Properties)), ", ")
				p.wrong(key, "unknown member %s; allowed in %s: %s", shown(key), cmp.Or(k.Title, name), known)
			}
		}
		return
	case *kind.Enum:
		p.wrong(at, "%s must be one of %s, not %s", name, strings.Join(k.Enum, ", "), shown(at))
		return
	}
	switch {
	case strings.HasPrefix(k.ErrorMessage, "must "):
		p.wrong(at, "%s %s, not %s", name, k.ErrorMessage, shown(at))
	case k.ErrorMessage != "":
		p.wrong(at, "%s", k.ErrorMessage)
	case len(e.Causes) > 0:
		for _, cause := range e.Causes {
			p.explain(cause)
		}
	default:
		p.wrong(at, "%s: %s", cmp.Or(k.Title, name), e.ErrorKind.LocalizedString(english))
	}
}

// at follows a path of member names and list indexes. It returns the last existing node. `name` is the last member name found on the path,
// for messages.
func (p *parser) at(path ...string) (name string, node *yaml.Node) {
	name, node = "a scenario", p.root
	for _, token := range path {
		key, value := child(node, token)
		if value == nil {
			break
		}
		if node = value; key != nil {
			name = key.Value
		}
	}
	return name, node
}

func child(n *yaml.Node, token string) (key, value *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(token); err == nil && i < len(n.Content) {
			return nil, n.Content[i]
		}
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == token {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

func shown(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.AliasNode: "an alias"}[n.Kind]
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return fmt.Sprintf("the text %.40q", n.Value)
	}
	return fmt.Sprintf("%.40q", n.Value)
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (2020-12) of scenario files. It uses three keywords that are not in the standard: minDuration,
// maxDuration, and errorMessage for the text of an error.
func Schema() []byte { return slices.Clone(schema) }

var compiled = sync.OnceValue(func() *jsonschema.Schema {
	const schemaURL = "file:///scenario.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		panic(err) // cannot fail: the schema is embedded
	}
	c := jsonschema.NewCompiler()
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "file:///durations", Compile: compileBounds})
	c.AssertVocabs()
	if err := c.AddResource(schemaURL, document); err != nil {
		panic(err)
	}
	return c.MustCompile(schemaURL)
})

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

// keywords contains members of the schema for use in error messages.
type keywords struct {
	Title        string
	Properties   map[string]yaml.Node
	Enum         []string
	ErrorMessage string `yaml:"errorMessage"`
}

var schemaTree = sync.OnceValue(func() *yaml.Node {
	var document yaml.Node
	if err := yaml.Unmarshal(schema, &document); err != nil {
		panic(err) // cannot fail: the schema is embedded
	}
	return document.Content[0]
})

func keywordsAt(url string) (k keywords) {
	n := schemaTree()
	_, pointer, _ := strings.Cut(url, "#")
	for _, token := range strings.Split(pointer, "/")[1:] {
		_, n = child(n, token)
	}
	if err := n.Decode(&k); err != nil {
		panic(err) // cannot fail: the schema is embedded
	}
	return k
}

// workKinds returns "ALL", then all work kinds in the order of the API contract (section 6).
func workKinds() []string { return keywordsAt("#/$defs/kind").Enum }
