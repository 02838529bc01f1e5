package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// neverSet is Go's zero time in JSON. The client library returns it for a time that the service did not send.
const neverSet = "0001-01-01T00:00:00Z"

// Values converts an item to the maps, slices and strings of decoded JSON. Numbers keep all their digits. Zero times become null. Empty
// secrets are omitted.
func Values(item any) (any, error) {
	text, raw := item.(json.RawMessage)
	if !raw {
		var err error
		if text, err = json.Marshal(item); err != nil {
			return nil, err
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("the service's response is not JSON: %w", err)
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

// At returns the member at a path such as failure.detail, or nil.
func At(value any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// Text prints a value for people.
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
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
