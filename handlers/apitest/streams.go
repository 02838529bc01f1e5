package apitest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// VerifyFrame returns all differences between a frame and the documented stream at escapedPath. `id` is "" for a frame without an id.
func (d *Document) VerifyFrame(escapedPath, id, event, data string) error {
	for _, of := range as[object](d.root["channels"]) {
		channel := as[object](of)
		address := as[string](channel["address"])
		if !matches(address, escapedPath) {
			continue
		}
		if as[object](channel["messages"])[event] == nil {
			return fmt.Errorf("%s has no message %q", address, event)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err != nil {
			return fmt.Errorf("the data of %s is not JSON: %w", event, err)
		}
		fields := object{"event": event}
		if id != "" {
			fields["id"] = id
		}
		message := "#/components/messages/" + event
		wrong := d.schema(message + "/payload").Validate(value)
		for _, trait := range as[[]any](d.find(message + "/traits")) {
			wrong = errors.Join(wrong, d.schema(as[string](as[object](trait)["$ref"])+"/headers").Validate(fields))
		}
		return wrong
	}
	return fmt.Errorf("no stream is documented at %s", escapedPath)
}

func matches(template, escapedPath string) bool {
	want, have := strings.Split(template, "/"), strings.Split(escapedPath, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool {
		return want == have || strings.HasPrefix(want, "{") && have != ""
	})
}
