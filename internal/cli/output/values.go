package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// neverSet are times that are not known: what the client library has for a member that is absent.
const neverSet = "0001-01-01T00:00:00Z"

// Values gives a thing with the names that the API has for its members, numbers as they were written, and null for what is
// not known. Secrets that are not there have no member.
func Values(item any) (any, error) {
	var text []byte
	switch known := item.(type) {
	case map[string]any, []any:
		return known, nil
	case json.RawMessage:
		text = known
	default:
		var err error
		if text, err = json.Marshal(item); err != nil {
			return nil, err
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("what the service answered is no JSON: %w", err)
	}
	return known(value), nil
}

func known(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if v[name] = known(member); name == "secret" && member == "" {
				delete(v, name)
			}
		}
	case []any:
		for i, element := range v {
			v[i] = known(element)
		}
	case string:
		if v == neverSet {
			return nil
		}
	}
	return value
}

// Items are things to be printed as a list.
func Items[T any](all []T) []any {
	items := make([]any, len(all))
	for i, one := range all {
		items[i] = one
	}
	return items
}

// At gives what is at a path, such as failure.detail; nil if there is nothing.
func At(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

// Text gives a value for people.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = Text(element)
		}
		return strings.Join(parts, ",")
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		for i, name := range names {
			names[i] = name + "=" + Text(v[name])
		}
		return strings.Join(names, ",")
	}
	return fmt.Sprint(value)
}
