package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// Streams is an AsyncAPI document. It is safe for concurrent use.
type Streams struct {
	Channels map[string]struct {
		Address  string
		Messages map[string]any
	}
	Components struct {
		Messages map[string]struct{ Traits []map[string]string }
	}
	mu       sync.Mutex // protects compiler
	compiler *jsonschema.Compiler
}

// home is the address of the document within the compiler.
const home = "https://apitest.invalid/asyncapi"

// NewStreams reads an AsyncAPI document in YAML.
func NewStreams(t testing.TB, text []byte) *Streams {
	t.Helper()
	return parseOnce(t, text, parseStreams)
}

func parseStreams(text []byte) (*Streams, error) {
	s := &Streams{compiler: jsonschema.NewCompiler()}
	var root any
	if err := errors.Join(yaml.Unmarshal(text, s), yaml.Unmarshal(text, &root)); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	if root, err = jsonschema.UnmarshalJSON(bytes.NewReader(plain)); err != nil {
		return nil, err
	}
	s.compiler.AssertFormat()
	return s, s.compiler.AddResource(home, root)
}

// VerifyFrame returns everything that is wrong with a frame on the stream at a path. The id is "" if the frame has none.
func (s *Streams) VerifyFrame(escapedPath, id, event, data string) error {
	for _, channel := range s.Channels {
		if !matches(channel.Address, escapedPath) {
			continue
		}
		if _, ok := channel.Messages[event]; !ok {
			return fmt.Errorf("%s has no message %q", channel.Address, event)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
		if err != nil {
			return fmt.Errorf("the data of %s is not JSON: %w", event, err)
		}
		fields := map[string]any{"event": event}
		if id != "" {
			fields["id"] = id
		}
		wrong := s.validate("#/components/messages/"+event+"/payload", value)
		for _, trait := range s.Components.Messages[event].Traits {
			wrong = errors.Join(wrong, s.validate(trait["$ref"]+"/headers", fields))
		}
		return wrong
	}
	return fmt.Errorf("no stream is documented at %s", escapedPath)
}

func (s *Streams) validate(pointer string, value any) error {
	s.mu.Lock()
	schema, err := s.compiler.Compile(home + pointer)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// matches reports whether a path has the form of a template.
func matches(template, escapedPath string) bool {
	want, have := strings.Split(template, "/"), strings.Split(escapedPath, "/")
	return slices.EqualFunc(want, have, func(want, have string) bool {
		return want == have || strings.HasPrefix(want, "{") && have != ""
	})
}
