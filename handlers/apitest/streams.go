package apitest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Streams checks the frames of event streams against one AsyncAPI document. It
// may be used by many goroutines at once.
type Streams struct{ channels []channel }

// channel is a stream's address with what may come on it, by name.
type channel struct {
	template string
	messages map[string]message
}

// message is what the document says of a frame: of its data, and of the fields
// beside it.
type message struct {
	payload *jsonschema.Schema
	fields  []*jsonschema.Schema
}

// NewStreams reads an AsyncAPI document. Reading the same text again costs
// nothing.
func NewStreams(t testing.TB, asyncAPI []byte) *Streams {
	t.Helper()
	return parse(t, asyncAPI, buildStreams)
}

// Verify gives what is wrong with a frame that came on a stream of the path, nil
// if nothing is. The id is "" for a frame that has none.
func (s *Streams) Verify(escapedPath, id, event, data string) error {
	for _, c := range s.channels {
		if !matches(c.template, escapedPath) {
			continue
		}
		m, ok := c.messages[event]
		if !ok {
			return fmt.Errorf("%s has no message %q", c.template, event)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err != nil {
			return fmt.Errorf("the data of %s is not JSON: %w", event, err)
		}
		fields := map[string]any{"event": event}
		if id != "" {
			fields["id"] = id
		}
		wrong := []error{m.payload.Validate(value)}
		for _, schema := range m.fields {
			wrong = append(wrong, schema.Validate(fields))
		}
		return errors.Join(wrong...)
	}
	return fmt.Errorf("no stream is documented at %s", escapedPath)
}

func buildStreams(text []byte) (*Streams, error) {
	b, err := load(text)
	if err != nil {
		return nil, err
	}
	s := &Streams{}
	for name := range b.members("/channels") {
		at := "/channels/" + escape(name)
		template, _ := b.at(at + "/address").(string)
		c := channel{template, map[string]message{}}
		for name := range b.members(at + "/messages") {
			c.messages[name] = b.message(b.follow(at + "/messages/" + escape(name)))
		}
		s.channels = append(s.channels, c)
	}
	return s, b.err
}

func (b *builder) message(at string) message {
	m := message{payload: b.schema(at + "/payload")}
	if m.payload == nil {
		b.fail("%s has no payload", at)
	}
	traits, _ := b.at(at + "/traits").([]any)
	for _, t := range traits {
		trait, _ := t.(map[string]any)
		ref, _ := trait["$ref"].(string)
		schema := b.schema(strings.TrimPrefix(ref, "#") + "/headers")
		if schema == nil {
			b.fail("the trait %q of %s has no headers", ref, at)
		}
		m.fields = append(m.fields, schema)
	}
	return m
}
