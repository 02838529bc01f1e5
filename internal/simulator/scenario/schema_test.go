package scenario_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(scenario.Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.AddResource("scenario.schema.json", document))
	s, err := c.Compile("scenario.schema.json")
	require.NoError(t, err)
	return s
}

// instance is a YAML text as an editor's validator sees it.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	require.NoError(t, yaml.Unmarshal(text, &value))
	asJSON, err := json.Marshal(value)
	require.NoError(t, err)
	value, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	require.NoError(t, err)
	return value
}

func TestReadyMadeScenariosFollowTheSchema(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	for _, name := range scenario.Names() {
		text, err := scenario.Text(name)
		require.NoError(t, err)
		require.NoError(t, schema.Validate(instance(t, text)), name)
	}
	require.NoError(t, schema.Validate(instance(t, []byte(mixed))))
}

func TestSchemaAndParserAgree(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	good := []string{
		"seed: 0", "seed: 18446744073709551615", "name: a-b_C9", "description: " + strings.Repeat("é", 1000), "duration: 1h2m3.5s",
		"jobs: 1e3", "tenants: 9", "readers: {streams: 0, slow: 3, poll: 100%}", "readers: {poll: 0.5}", "service: {workers: 4}",
		"service: {workers: 1..32}", "service: {workers: '1,4,2'}",
		"service: {env: {FORGERUN_DB_TIMEOUT: 5s, FORGERUN_MAX_RETRIES: 2, FORGERUN_WEBHOOK_ALLOW_PRIVATE: true}}",
		"chaos: kill=30s,redis-pause=1m", "expect: {refused: 5%, submit_p99: 1s}",
		"arrival: {closed: {clients: 5, think: 1s..2s}}",
		"arrival: {open: [{for: 5s, rate: 5}, {for: 5s, from: 0, to: 30/m, arrivals: poisson}, {for: 1s, burst: 3}]}",
		"mix: [{kind: ALL}, {kinds: ALL}, {kinds: [SUCCESS_FAST, PAYLOAD_INVALID]}, {type: EMIT_EVENT}]",
		"mix: [{kind: ALL, type: DEFERRED, ahead: 1s..2s}]",
		"mix: [{kind: ALL, cancel: {in: RUNNING, after: 1s, share: 5%}, retry: {max: 3}, duplicate: {copies: 2, at_once: true}}]",
		"mix: [{kind: ALL, batch: 5, duplicate: {key: same}}]",
		"receivers: [{name: a, events: ['*', job.failed], answers: [{status: 500, after: 1s, share: 5%}]}]",
		"receivers: [{name: a, callback: true, answers: [{hang: true}]}]",
		"receivers: [{name: a, answers: [{reset: true, after: 1s}]}]",
	}
	bad := []string{
		"seed: 1.5", "seed: '1'", "name: -a", "description: " + strings.Repeat("é", 1001), "duration: 30 s", "duration: 1d",
		"jobs: 0", "jobs: [1]", "tenants: true", "readers: {poll: 1.5}", "readers: {poll: 100.5%}", "readers: {poll: -5%}",
		"service: {workers: 33}", "service: {workers: 1...4}", "service: {time_scale: fast}",
		"service: {env: {FORGERUN_TIME_SCALE: 5}}", "chaos: kill=30s,", "expect: {refused: many}",
		"arrival: {open: [{rate: 0.0001}]}", "arrival: {open: [{rate: 5, from: 1}]}", "arrival: {open: [{for: 5s, to: 1}]}",
		"arrival: {open: [{rate: 5}], closed: {clients: 1}}", "mix: [{kind: success_fast}]", "mix: []",
		"mix: [{kind: ALL, params_bytes: 1048577}]", "receivers: [{events: ['*']}]",
		"receivers: [{name: a, answers: [{reset: true, status: 500}]}]",
	}
	for n, members := range slices.Concat(good, bad) {
		text := []byte(frame(members))
		_, err := scenario.Parse("x.yaml", text)
		require.Equal(t, n < len(good), err == nil, "parser, of %s: %v", members, err)
		err = schema.Validate(instance(t, text))
		require.Equal(t, n < len(good), err == nil, "schema, of %s: %v", members, err)
	}
	noEnd := instance(t, []byte(`{arrival: {closed: {clients: 1}}, mix: [{kind: ALL}]}`))
	require.Error(t, schema.Validate(noEnd), "neither duration nor jobs")
}

type object struct {
	Type        any                `json:"type"`
	Description string             `json:"description"`
	Properties  map[string]*object `json:"properties"`
	Items       *object            `json:"items"`
	Ref         string             `json:"$ref"`
	Defs        map[string]*object `json:"$defs"`
}

func schemaRoot(t *testing.T) *object {
	t.Helper()
	var root object
	require.NoError(t, json.Unmarshal(scenario.Schema(), &root))
	return &root
}

// walk calls fn with each member of the schema, by its path.
func (root *object) walk(fn func(path string, member *object)) {
	var look func(path string, o *object)
	look = func(path string, o *object) {
		if o.Items != nil {
			o = o.Items
		}
		if o.Ref != "" {
			o = root.Defs[strings.TrimPrefix(o.Ref, "#/$defs/")]
		}
		for name, p := range o.Properties {
			at := strings.TrimPrefix(path+"."+name, ".")
			fn(at, p)
			look(at, p)
		}
	}
	look("", root)
}

// A message stands next to the bounds that it names.
func TestMessagesNameTheBounds(t *testing.T) {
	t.Parallel()
	messages := 0
	var look func(value any)
	look = func(value any) {
		if list, ok := value.([]any); ok {
			for _, v := range list {
				look(v)
			}
		}
		keywords, _ := value.(map[string]any)
		message, isText := keywords["errorMessage"].(string)
		for _, bound := range []string{"minimum", "maximum", "minDuration", "maxDuration"} {
			if limit := keywords[bound]; isText && limit != nil {
				messages++
				require.Regexp(t, fmt.Sprintf(`\b%v\b`, limit), message)
			}
		}
		for _, v := range keywords {
			look(v)
		}
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(scenario.Schema()))
	require.NoError(t, err)
	look(document)
	require.Greater(t, messages, 40)
}

func TestSchemaDescribesEveryMember(t *testing.T) {
	t.Parallel()
	root, members := schemaRoot(t), 0
	root.walk(func(path string, member *object) {
		if members++; member.Ref != "#/$defs/setting" {
			require.Greater(t, len(member.Description), 20, path)
		}
	})
	require.Greater(t, members, 60)
	for name, o := range root.Defs {
		require.NotEmpty(t, o.Description, name)
	}
}
