package apitest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// VerifyFrame gives what is wrong with a frame that came on a stream of the path, nil
// if nothing is. The id is "" for a frame that has none.
func (d *Document) VerifyFrame(escapedPath, id, event, data string) error {
	for _, channel := range d.in("channels").members() {
		template := channel.text("address")
		if !matches(template, escapedPath) {
			continue
		}
		message := channel.in("messages", event)
		payload := message.in("payload")
		if payload.value == nil {
			return fmt.Errorf("%s has no message %q", template, event)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err != nil {
			return fmt.Errorf("the data of %s is not JSON: %w", event, err)
		}
		fields := map[string]any{"event": event}
		if id != "" {
			fields["id"] = id
		}
		wrong := payload.validate(value)
		for _, trait := range message.in("traits").members() {
			if trait.in("headers").value == nil {
				return fmt.Errorf("a trait of %s has no headers", event)
			}
			wrong = errors.Join(wrong, trait.in("headers").validate(fields))
		}
		return wrong
	}
	return fmt.Errorf("no stream is documented at %s", escapedPath)
}
