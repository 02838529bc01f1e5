package apitest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pb33f/go-yaml"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	"github.com/pb33f/libopenapi/orderedmap"
)

// flat returns a schema with the keywords of its allOf.
func flat(of *base.SchemaProxy) *base.Schema {
	s := *of.Schema()
	keywords := reflect.ValueOf(&s).Elem()
	properties := orderedmap.New[string, *base.SchemaProxy]()
	for _, part := range s.AllOf {
		p := flat(part)
		for name, member := range p.Properties.FromOldest() {
			properties.Set(name, member)
		}
		s.Required = slices.Concat(s.Required, p.Required)
		for i := range keywords.NumField() {
			if own := keywords.Field(i); own.CanSet() && own.IsZero() {
				own.Set(reflect.ValueOf(p).Elem().Field(i))
			}
		}
	}
	for name, member := range s.Properties.FromOldest() {
		properties.Set(name, member)
	}
	s.Properties = properties
	return &s
}

// parse returns the value of a parameter as JSON.
func parse(s *base.Schema, text string) string {
	_, err := strconv.Atoi(text)
	if err == nil && slices.Contains(s.Type, "integer") || slices.Contains(s.Type, "boolean") && (text == "true" || text == "false") {
		return text
	}
	return asJSON(text)
}

// objectWith returns an object of the required members and one more.
func objectWith(s *base.Schema, name, value string) string {
	members := map[string]json.RawMessage{}
	for _, other := range s.Required {
		if member := s.Properties.GetOrZero(other); member != nil {
			members[other] = json.RawMessage(sample(flat(member)))
		}
	}
	members[name] = json.RawMessage(value)
	return asJSON(members)
}

// sample returns a value that the schema allows, as JSON.
func sample(s *base.Schema) string {
	for _, values := range [][]*yaml.Node{s.Examples, s.Enum, {s.Const}} {
		if len(values) > 0 && values[0] != nil {
			return nodeAsJSON(values[0])
		}
	}
	for _, alternatives := range [][]*base.SchemaProxy{s.OneOf, s.AnyOf} {
		if len(alternatives) > 0 {
			return sample(flat(alternatives[0]))
		}
	}
	is := func(kind string) bool { return slices.Contains(s.Type, kind) }
	switch {
	case s.Format == "uuid":
		return `"0190a1b2-c3d4-7000-8000-000000000b01"`
	case is("string"):
		return asJSON(strings.Repeat("a", int(max(3, or(s.MinLength, 0)))))
	case is("integer"):
		return asJSON(int(or(s.Minimum, 0)))
	case is("number"):
		return asJSON(max(or(s.Minimum, 0), 0.5))
	case is("boolean"):
		return "true"
	case is("array"):
		return repeated(s, or(s.MinItems, 0))
	}
	names := s.Required
	if or(s.MinProperties, 0) > int64(len(names)) {
		names = slices.Collect(s.Properties.KeysFromOldest())
	}
	if len(names) == 0 {
		return "{}"
	}
	return objectWith(s, names[0], sample(flat(s.Properties.GetOrZero(names[0]))))
}

func repeated(s *base.Schema, n int64) string {
	return "[" + strings.Join(slices.Repeat([]string{sample(flat(s.Items.A))}, int(max(0, n))), ",") + "]"
}

// or returns the value of a keyword, or other if the schema lacks it.
func or[T any](value *T, other T) T {
	if value == nil {
		return other
	}
	return *value
}

func isFalse(v *base.DynamicValue[*base.SchemaProxy, bool]) bool { return v != nil && v.IsB() && !v.B }

func escape(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }

func asJSON(value any) string {
	text, _ := json.Marshal(value) // always possible: the values come from JSON
	return string(text)
}

func nodeAsJSON(n *yaml.Node) string {
	var value any
	_ = n.Decode(&value) // always possible: the document was JSON
	return asJSON(value)
}

// asText returns the text of a JSON string.
func asText(value string) (text string, ok bool) {
	if !strings.HasPrefix(value, `"`) {
		return "", false
	}
	if !utf8.ValidString(value) {
		return strings.Trim(value, `"`), true
	}
	return text, json.Unmarshal([]byte(value), &text) == nil
}

// hostile are values that programs forget about.
var hostile = []string{`null`, `"\u0000"`, "\"\xff\"", `""`, `"x"`, `0`, `true`, `[]`, `{}`, `[null]`}

// moments are texts at the edges of the format date-time.
var moments = []string{
	"2030-01-31T12:00:00+00:00", "2030-01-31T12:00:00.123456789Z", "2030-01-31T12:00:00.1234567890Z", "2030-01-31T12:00:00+01:00",
	"2030-01-31T12:00:00-00:00", "2030-02-30T12:00:00Z", "2030-01-31t12:00:00Z", "2030-01-31T12:00:00z", "2030-06-30T23:59:60Z", "2030-01-31",
}

// valuesOf returns hostile values and, with edges, the last values that the schema allows and the first ones that it does not.
func valuesOf(s *base.Schema, edges bool) []string {
	if !edges {
		return hostile
	}
	values := append(slices.Clone(hostile), `-1`, `1.5`)
	for i, value := range s.Enum {
		text := nodeAsJSON(value)
		if values = append(values, text); i == 0 {
			values = append(values, strings.ToLower(text), strings.ToUpper(text))
		}
	}
	limits := []*float64{s.Minimum, s.Maximum}
	if s.ExclusiveMinimum != nil {
		limits = append(limits, &s.ExclusiveMinimum.B)
	}
	for _, edge := range limits {
		if edge != nil {
			step := 1.0
			if slices.Contains(s.Type, "number") {
				step = 0.01
			}
			for _, n := range []float64{*edge - step, *edge, *edge + step} {
				values = append(values, strconv.FormatFloat(n, 'f', -1, 64))
			}
			values = append(values, strconv.FormatFloat(*edge, 'f', 1, 64))
		}
	}
	example, _ := asText(sample(s))
	for _, edge := range []*int64{s.MinLength, s.MaxLength} {
		for i := int64(-1); edge != nil && i <= 1; i++ {
			n := int(max(0, *edge+i))
			values = append(values, asJSON(padded(example, "a", n)), asJSON(padded("", "é", n)))
		}
	}
	for _, edge := range []*int64{s.MinItems, s.MaxItems} {
		if edge != nil {
			values = append(values, repeated(s, *edge-1), repeated(s, *edge), repeated(s, *edge+1))
		}
	}
	return slices.Compact(append(values, textsOf(s, example)...))
}

// textsOf returns values at the edges of formats and patterns.
func textsOf(s *base.Schema, example string) (values []string) {
	switch s.Format {
	case "uuid":
		values = append(values, strings.ToUpper(asJSON(example)), asJSON("urn:uuid:"+example), asJSON("{"+example+"}"), asJSON(example+"0"))
	case "date-time":
		for _, text := range moments {
			values = append(values, asJSON(text))
		}
	}
	if s.Pattern != "" {
		values = append(values, asJSON(example), asJSON(example+"\n"), asJSON(example+" "), asJSON("é"))
	}
	return values
}

// padded returns a text of n characters that begins with a sample if it fits.
func padded(sample, with string, n int) string {
	if n < utf8.RuneCountInString(sample) {
		sample = ""
	}
	return sample + strings.Repeat(with, n-utf8.RuneCountInString(sample))
}
