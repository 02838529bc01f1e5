package decode

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/forgerun/forgerun/job"
)

// finding is a mistake that a schema found.
type finding struct {
	path   []string
	isForm bool
	detail func() string // called for findings that are listed
}

// check records what a schema finds wrong with a value: in the order of its members, and what is missing last.
func (r *reader) check(schema string, tree any) {
	err, wrong := errors.AsType[*jsonschema.ValidationError](r.schemas.schema(schema).Validate(tree))
	if !wrong {
		return
	}
	found := r.collect(nil, err)
	place := map[string]int{}
	for i, m := range r.outer {
		place[m.name] = i - len(r.outer)
	}
	slices.SortFunc(found, func(a, b finding) int {
		if len(a.path) == 0 || len(b.path) == 0 {
			return len(a.path) - len(b.path)
		}
		return cmp.Or(place[a.path[0]]-place[b.path[0]], slices.CompareFunc(a.path, b.path, natural))
	})
	seen := map[string]bool{}
	for _, f := range found {
		list := &r.values
		if f.isForm {
			list = &r.form
		}
		if len(*list) >= r.limit {
			r.more++
			continue
		}
		if len(f.path) > 0 && !slices.Contains(r.wrong, f.path[0]) {
			r.wrong = append(r.wrong, f.path[0])
		}
		if at := pointer(r.base, f.path...); !seen[at] {
			seen[at] = true
			r.record(list, at, f.detail())
		}
	}
}

// natural compares names, and indexes as numbers.
func natural(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }

// collect appends what an error of the validator says.
func (r *reader) collect(found []finding, e *jsonschema.ValidationError) []finding {
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf, *kind.AnyOf, *kind.OneOf:
		for _, cause := range e.Causes {
			found = r.collect(found, cause)
		}
		return found
	}
	if len(found) >= maxFound {
		r.more++
		return found
	}
	at, of := r.schemas.at(e.SchemaURL)
	f := finding{path: e.InstanceLocation, detail: func() string { return r.sentence(of, e) }}
	below := func(name string, detail func() string) {
		if len(found) >= maxFound {
			r.more++
			return
		}
		found = append(found, finding{append(slices.Clip(e.InstanceLocation), name), true, detail})
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			below(name, func() string { return r.unknown(of, name) })
		}
		return found
	case *kind.Required:
		for _, name := range k.Missing {
			below(name, func() string { return "This member is required." })
		}
		return found
	case *kind.Type:
		f.isForm = (at != "FaultEffect.tls" || k.Got != "string") && (k.Got != "number" || !slices.Contains(k.Want, "integer"))
		if isNull(of) && of["description"] == nil {
			return found // another alternative says what is wrong
		}
	case *kind.MinProperties:
		if f.isForm = true; !strings.HasSuffix(at, "Patch") {
			return found // the checks of cross-members say more
		}
	case *kind.MinItems, *kind.MaxItems:
		f.isForm = formLists[at+fmt.Sprintf("%T", k)[len("*kind"):]]
	}
	return append(found, f)
}

// at returns the schema that a URL points to, and its name, such as JobRequest.type.
func (s *Schemas) at(url string) (name string, of map[string]any) {
	names := strings.Split(strings.TrimPrefix(url, schemasAt), "/")
	var schema any = s.all
	for i, name := range names {
		if list, ok := schema.([]any); ok {
			i, _ := strconv.Atoi(name)
			schema = list[i]
		} else {
			schema = get(schema, name)
		}
		if name == "properties" && i > 0 {
			names[i] = "."
		}
	}
	of, _ = schema.(map[string]any)
	return strings.Join(names, ""), of
}

// unknown says that an object does not have a member of that name.
func (r *reader) unknown(of map[string]any, name string) string {
	properties, _ := of["properties"].(map[string]any)
	var known []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if get(properties[name], note) != hidden {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return "This member is not known; the object must be empty."
	}
	return "This member is not known." + suggest(r, name, known) + " The object may have " + strings.Join(known, ", ") + "."
}

// sentence says what a value must be.
func (r *reader) sentence(of map[string]any, e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		want := typeNames[k.Want[0]]
		if k.Want[0] == "null" && len(k.Want) > 1 {
			want = typeNames[k.Want[1]]
		}
		switch {
		case len(e.InstanceLocation) == 0 && r.base == "":
			return "The body must be a JSON object."
		case isNull(of):
			return get(of, "description").(string)
		case k.Got == "null" && len(e.InstanceLocation) > 0:
			return "This must be " + want + ", and not null. Leave the member out instead."
		case k.Got != "number" || !slices.Contains(k.Want, "integer"):
			return "This must be " + want + "."
		}
	case *kind.Enum:
		return r.noSuch(of, e.InstanceLocation, k)
	case *kind.Format:
		return k.Err.Error()
	case *kind.MinProperties:
		return "The object must have at least one of " + strings.Join(slices.Sorted(maps.Keys(of["properties"].(map[string]any))), ", ") + "."
	case *kind.Pattern:
		if check := patterns[k.Want]; check.wrong != nil {
			return check.wrong(k.Got)
		}
	}
	return valueSentence(of)
}

var typeNames = map[string]string{"string": "a string", "object": "an object", "array": "an array", "boolean": "true or false",
	"integer": "a whole number", "number": "a number", "null": "null"}

// noSuch says which values there are.
func (r *reader) noSuch(of map[string]any, path []string, k *kind.Enum) string {
	var known []string
	for _, value := range k.Want {
		if value != nil && (value != string(job.Custom) || r.limits.TestBed) {
			known = append(known, fmt.Sprint(value))
		}
	}
	what, isElement := "value", false
	for _, name := range slices.Backward(path) {
		if _, err := strconv.Atoi(name); err != nil {
			if what = strings.ReplaceAll(name, "_", " "); isElement {
				what = strings.TrimSuffix(what, "s")
			}
			break
		}
		isElement = true
	}
	got, _ := k.Got.(string)
	noteOf, _ := of[note].(string)
	return "There is no such " + what + "." + suggest(r, got, known) + " It must be " + OneOf(known) + noteOf + "."
}

// suggest is DidYouMean, for so many wrong names of a body.
func suggest(r *reader, text string, known []string) string {
	if r.guess == 0 || len(text) > maxGuessBytes {
		return ""
	}
	r.guess--
	return DidYouMean(text, known)
}

// bounds says from what to what a number goes.
func bounds(of map[string]any) string {
	switch {
	case of["exclusiveMinimum"] != nil:
		return fmt.Sprintf(" above %v, up to %v.", of["exclusiveMinimum"], of["maximum"])
	case of["maximum"] == nil:
		return fmt.Sprintf(" of at least %v.", of["minimum"])
	}
	return fmt.Sprintf(" from %v to %v.", of["minimum"], of["maximum"])
}

// valueSentence says what a schema allows.
func valueSentence(of map[string]any) string {
	types := fmt.Sprint(of["type"])
	switch {
	case strings.Contains(types, "integer"):
		return "This must be a whole number" + bounds(of)
	case strings.Contains(types, "number"):
		return "This must be a number" + bounds(of)
	case of["maxItems"] != nil:
		return fmt.Sprintf("This must have %v to %v elements.", cmp.Or(of["minItems"], any("0")), of["maxItems"])
	}
	characters := "characters"
	if pattern, ok := of["pattern"].(string); ok {
		characters = cmp.Or(patterns[pattern].characters, "characters that match "+pattern)
	}
	if of["minLength"] == nil {
		return fmt.Sprintf("This must have at most %v %s.", of["maxLength"], characters)
	}
	return fmt.Sprintf("This must be %v to %v %s.", of["minLength"], of["maxLength"], characters)
}
