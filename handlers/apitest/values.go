package apitest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// keywords are those of a schema with what it refers to, and what it is composed of by allOf.
type keywords map[string]any

// flatOf gives a schema with the keywords of those that it refers to.
func (d *tree) flatOf(schema any) keywords {
	members, _ := schema.(map[string]any)
	if ref, ok := members["$ref"].(string); ok {
		return d.flatOf(d.target(ref).value)
	}
	flat := keywords{}
	parts, _ := members["allOf"].([]any)
	for _, part := range parts {
		flat.join(d.flatOf(part))
	}
	flat.join(members)
	return flat
}

func (s keywords) join(other map[string]any) {
	for keyword, value := range other {
		switch keyword {
		case "properties":
			all := maps.Clone(s.object(keyword))
			if all == nil {
				all = map[string]any{}
			}
			maps.Copy(all, value.(map[string]any))
			s[keyword] = all
		case "required":
			names, _ := s[keyword].([]any)
			s[keyword] = slices.Concat(names, value.([]any))
		default:
			s[keyword] = value
		}
	}
}

func (s keywords) object(keyword string) map[string]any {
	members, _ := s[keyword].(map[string]any)
	return members
}

// number gives the number of a keyword.
func (s keywords) number(keyword string) (float64, bool) {
	n, ok := s[keyword].(json.Number)
	value, _ := n.Float64()
	return value, ok
}

// is reports whether a value may be of a type.
func (s keywords) is(kind string) bool {
	kinds, _ := s["type"].([]any)
	return s["type"] == kind || slices.Contains(kinds, any(kind))
}

// parse gives the value of a parameter.
func (s keywords) parse(text string) any {
	if _, err := strconv.Atoi(text); err == nil && s.is("integer") {
		return json.Number(text)
	}
	if s.is("boolean") && (text == "true" || text == "false") {
		return text == "true"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func (s keywords) required() (names []string) {
	list, _ := s["required"].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}

// objectWith gives an object of the members that are required, and one more.
func (d *tree) objectWith(s keywords, name, value string) string {
	members := map[string]string{name: value}
	for _, other := range s.required() {
		if other != name {
			members[other] = d.sample(d.flatOf(s.object("properties")[other]))
		}
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		text = append(text, asJSON(name)+":"+members[name])
	}
	return "{" + strings.Join(text, ",") + "}"
}

// sample gives a value that the schema allows, as JSON.
func (d *tree) sample(s keywords) string {
	for _, keyword := range []string{"examples", "enum"} {
		if values, _ := s[keyword].([]any); len(values) > 0 {
			return asJSON(values[0])
		}
	}
	for _, keyword := range []string{"oneOf", "anyOf"} {
		if values, _ := s[keyword].([]any); len(values) > 0 {
			return d.sample(d.flatOf(values[0]))
		}
	}
	switch least, _ := s.number("minimum"); {
	case s["const"] != nil:
		return asJSON(s["const"])
	case s["format"] == "uuid":
		return `"0190a1b2-c3d4-7000-8000-000000000b01"`
	case s.is("string"):
		least, _ := s.number("minLength")
		return asJSON(strings.Repeat("a", max(3, int(least))))
	case s.is("integer"):
		return strconv.Itoa(int(least))
	case s.is("number"):
		return strconv.FormatFloat(max(least, 0.5), 'f', -1, 64)
	case s.is("boolean"):
		return "true"
	case s.is("array"):
		least, _ := s.number("minItems")
		return d.repeated(s, int(least))
	}
	names := s.required()
	if least, ok := s.number("minProperties"); ok && len(names) < int(least) {
		names = slices.Sorted(maps.Keys(s.object("properties")))
	}
	if len(names) == 0 {
		return "{}"
	}
	return d.objectWith(s, names[0], d.sample(d.flatOf(s.object("properties")[names[0]])))
}

func (d *tree) repeated(s keywords, n int) string {
	return "[" + strings.Join(slices.Repeat([]string{d.sample(d.flatOf(s["items"]))}, max(0, n)), ",") + "]"
}

func asJSON(value any) string {
	text, _ := json.Marshal(value) // of a document
	return string(text)
}

// asText gives the text of a JSON string.
func asText(value string) (text string, ok bool) {
	if !strings.HasPrefix(value, `"`) {
		return "", false
	}
	if !utf8.ValidString(value) {
		return strings.Trim(value, `"`), true
	}
	return text, json.Unmarshal([]byte(value), &text) == nil
}

func decodeLoosely(body string, into any) { _ = json.Unmarshal([]byte(body), into) } // what is no JSON says nothing

// hostile are values that programs forget about.
var hostile = []string{`null`, `"\u0000"`, "\"\xff\"", `""`, `"x"`, `0`, `true`, `[]`, `{}`, `[null]`}

// moments are texts at the edges of what a moment is.
var moments = []string{
	"2030-01-31T12:00:00+00:00", "2030-01-31T12:00:00.123456789Z", "2030-01-31T12:00:00.1234567890Z", "2030-01-31T12:00:00+01:00",
	"2030-01-31T12:00:00-00:00", "2030-02-30T12:00:00Z", "2030-01-31t12:00:00Z", "2030-01-31T12:00:00z", "2030-06-30T23:59:60Z", "2030-01-31",
}

// edgesOf are those, and the last values that the schema allows with the first ones that it does not.
func (d *tree) edgesOf(s keywords) []string {
	values := append(slices.Clone(hostile), `-1`, `1.5`)
	all, _ := s["enum"].([]any)
	for i, value := range all {
		if values = append(values, asJSON(value)); i == 0 {
			values = append(values, strings.ToLower(asJSON(value)), strings.ToUpper(asJSON(value)))
		}
	}
	for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum"} {
		if edge, ok := s.number(keyword); ok {
			step := 1.0
			if s.is("number") {
				step = 0.01
			}
			for _, n := range []float64{edge - step, edge, edge + step} {
				values = append(values, strconv.FormatFloat(n, 'f', -1, 64))
			}
			values = append(values, strconv.FormatFloat(edge, 'f', 1, 64))
		}
	}
	sample, _ := asText(d.sample(s))
	for _, keyword := range []string{"minLength", "maxLength"} {
		if edge, ok := s.number(keyword); ok {
			for _, n := range []int{int(edge) - 1, int(edge), int(edge) + 1} {
				n = max(0, n)
				values = append(values, asJSON(padded(sample, "a", n)), asJSON(padded("", "é", n)))
			}
		}
	}
	for _, keyword := range []string{"minItems", "maxItems"} {
		if edge, ok := s.number(keyword); ok {
			values = append(values, d.repeated(s, int(edge)-1), d.repeated(s, int(edge)), d.repeated(s, int(edge)+1))
		}
	}
	switch s["format"] {
	case "uuid":
		values = append(values, strings.ToUpper(d.sample(s)), asJSON("urn:uuid:"+sample), asJSON("{"+sample+"}"), asJSON(sample+"0"))
	case "date-time":
		for _, text := range moments {
			values = append(values, asJSON(text))
		}
	}
	if s["pattern"] != nil {
		values = append(values, d.sample(s), asJSON(sample+"\n"), asJSON(sample+" "), asJSON("é"))
	}
	return slices.Compact(values)
}

// padded gives a text of n characters that begins with a sample, as long as that fits.
func padded(sample, with string, n int) string {
	if n < utf8.RuneCountInString(sample) {
		sample = ""
	}
	return sample + strings.Repeat(with, n-utf8.RuneCountInString(sample))
}
