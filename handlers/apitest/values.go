package apitest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

type object = map[string]any

func as[T any](value any) T {
	t, _ := value.(T)
	return t
}

func names(o object) []string { return slices.Sorted(maps.Keys(o)) }

// flat resolves a schema's $ref and merges the parts of its allOf into one object.
func (d *document) flat(of any) object {
	own := as[object](of)
	if ref := as[string](own["$ref"]); ref != "" {
		return d.flat(d.find(ref))
	}
	s, properties, required := object{}, object{}, []any(nil)
	for _, part := range as[[]any](own["allOf"]) {
		p := d.flat(part)
		maps.Copy(properties, as[object](p["properties"]))
		required = append(required, as[[]any](p["required"])...)
		maps.Copy(s, p)
	}
	maps.Copy(s, own)
	maps.Copy(properties, as[object](own["properties"]))
	s["properties"], s["required"] = properties, append(required, as[[]any](own["required"])...)
	return s
}

func is(s object, kind string) bool {
	return s["type"] == kind || slices.Contains(as[[]any](s["type"]), any(kind))
}

func parse(s object, text string) string {
	_, err := strconv.Atoi(text)
	if err == nil && is(s, "integer") || is(s, "boolean") && (text == "true" || text == "false") {
		return text
	}
	return asJSON(text)
}

func (d *document) objectWith(s object, name, value string) string {
	members := map[string]json.RawMessage{}
	for _, required := range as[[]any](s["required"]) {
		if member, ok := as[object](s["properties"])[as[string](required)]; ok {
			members[as[string](required)] = json.RawMessage(d.sample(d.flat(member)))
		}
	}
	if name != "" {
		members[name] = json.RawMessage(value)
	}
	return asJSON(members)
}

func (d *document) sample(s object) string {
	for _, values := range []any{s["examples"], s["enum"], s["const"]} {
		if list, ok := values.([]any); ok {
			return asJSON(list[0])
		} else if values != nil {
			return asJSON(values)
		}
	}
	for _, alternatives := range []any{s["oneOf"], s["anyOf"]} {
		if list := as[[]any](alternatives); len(list) > 0 {
			return d.sample(d.flat(list[0]))
		}
	}
	least := as[float64](s["minimum"])
	switch members := as[object](s["properties"]); {
	case s["format"] == "uuid":
		return `"0190a1b2-c3d4-7000-8000-000000000b01"`
	case is(s, "string"):
		return asJSON(strings.Repeat("a", int(max(3, as[float64](s["minLength"])))))
	case is(s, "integer"):
		return asJSON(least)
	case is(s, "number"):
		return asJSON(max(least, 0.5))
	case is(s, "boolean"):
		return "true"
	case is(s, "array"):
		return d.repeated(s, as[float64](s["minItems"]))
	case as[float64](s["minProperties"]) > float64(len(as[[]any](s["required"]))):
		first := names(members)[0]
		return d.objectWith(s, first, d.sample(d.flat(members[first])))
	}
	return d.objectWith(s, "", "")
}

func (d *document) repeated(s object, n float64) string {
	return "[" + strings.Join(slices.Repeat([]string{d.sample(d.flat(s["items"]))}, int(max(0, n))), ",") + "]"
}

func escape(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }

func asJSON(value any) string {
	text, _ := json.Marshal(value) // cannot fail: the values come from JSON
	return string(text)
}

func asText(value string) (text string, ok bool) {
	if !strings.HasPrefix(value, `"`) {
		return "", false
	}
	if !utf8.ValidString(value) {
		return strings.Trim(value, `"`), true
	}
	return text, json.Unmarshal([]byte(value), &text) == nil
}

// forgotten are values that programs often forget to check. Postgres can store neither NUL nor invalid UTF-8.
var forgotten = []string{`null`, `"\u0000"`, "\"\xff\""}

var plain = map[string][]string{
	"string": {`""`, `"x"`}, "integer": {`0`, `-1`, `1.5`}, "boolean": {`true`}, "array": {`[]`, `[null]`}, "object": {`{}`},
}

// hostile returns `forgotten`, the `plain` values of the schema's types, and two values of other types. The two values change from call
// to call.
func (w *walker) hostile(s object) []string {
	values, others := slices.Clone(forgotten), []string(nil)
	for _, kind := range slices.Sorted(maps.Keys(plain)) {
		if is(s, kind) || kind == "integer" && is(s, "number") {
			values = append(values, plain[kind]...)
		} else {
			others = append(others, plain[kind]...)
		}
	}
	for range min(2, len(others)) {
		w.turn++
		values = append(values, others[w.turn%len(others)])
	}
	return values
}

var moments = []string{
	"2030-01-31T12:00:00+00:00", "2030-01-31T12:00:00.123456789Z", "2030-01-31T12:00:00.1234567890Z", "2030-01-31T12:00:00+01:00",
	"2030-01-31T12:00:00-00:00", "2030-02-30T12:00:00Z", "2030-01-31t12:00:00Z", "2030-01-31T12:00:00z", "2030-06-30T23:59:60Z", "2030-01-31",
}

func (w *walker) valuesOf(s object) []string {
	values := w.hostile(s)
	if !w.edges {
		return values
	}
	for i, value := range as[[]any](s["enum"]) {
		text := asJSON(value)
		if values = append(values, text); i == 0 {
			values = append(values, strings.ToLower(text), strings.ToUpper(text))
		}
	}
	example, _ := asText(w.sample(s))
	step := 1.0
	if is(s, "number") {
		step = 0.01
	}
	for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "minItems", "maxItems"} {
		edge, ok := s[keyword].(float64)
		for i := -1.0; ok && i <= 1; i++ {
			n := max(0, edge+i)
			switch {
			case strings.HasSuffix(keyword, "Length"):
				values = append(values, asJSON(padded(example, "a", int(n))), asJSON(padded("", "é", int(n))))
			case strings.HasSuffix(keyword, "Items"):
				values = append(values, w.repeated(s, n))
			default:
				values = append(values, strconv.FormatFloat(edge+i*step, 'f', -1, 64), strconv.FormatFloat(edge, 'f', 1, 64))
			}
		}
	}
	texts := []string{}
	switch s["format"] {
	case "uuid":
		texts = []string{strings.ToUpper(example), "urn:uuid:" + example, "{" + example + "}", example + "0"}
	case "date-time":
		texts = moments
	}
	if s["pattern"] != nil {
		texts = append(slices.Clone(texts), example, example+"\n", example+" ", "é")
	}
	for _, text := range texts {
		values = append(values, asJSON(text))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// padded returns a text of n characters: `sample` if that fits, then repetitions of `with`.
func padded(sample, with string, n int) string {
	if n < utf8.RuneCountInString(sample) {
		sample = ""
	}
	return sample + strings.Repeat(with, n-utf8.RuneCountInString(sample))
}
