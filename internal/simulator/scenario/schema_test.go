package scenario_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
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
	for _, test := range []struct {
		members string
		good    bool
	}{
		{"seed: 0", true},
		{"seed: 18446744073709551615", true},
		{"seed: -1", false},
		{"seed: 1.5", false},
		{"seed: '1'", false},
		{"seed: null", false},
		{"sed: 1", false},
		{"name: a-b_C9", true},
		{"name: -a", false},
		{"name: 5", false},
		{"description: some text", true},
		{"description: " + strings.Repeat("é", 1000), true},
		{"description: " + strings.Repeat("é", 1001), false},
		{"duration: 30s", true},
		{"duration: 1h2m3.5s", true},
		{"duration: 30", false},
		{"duration: 30 s", false},
		{"duration: 1d", false},
		{"jobs: 0", false},
		{"jobs: 1e3", true},
		{"jobs: 1000000001", false},
		{"jobs: [1]", false},
		{"tenants: 9", true},
		{"tenants: true", false},
		{"pick: in_turn", true},
		{"pick: InTurn", false},
		{"pick: in_turn\nmix: [{kind: ALL, weight: 2}]", false},
		{"readers: {streams: 0, slow: 3, poll: 100%}", true},
		{"readers: {poll: 0.5}", true},
		{"readers: {poll: 1.5}", false},
		{"readers: {poll: 100.5%}", false},
		{"readers: {poll: -5%}", false},
		{"readers: {polls: 5%}", false},
		{"service: {workers: 4}", true},
		{"service: {workers: 1..32}", true},
		{"service: {workers: '1,4,2'}", true},
		{"service: {workers: 0}", false},
		{"service: {workers: 33}", false},
		{"service: {workers: 1.5}", false},
		{"service: {workers: 1...4}", false},
		{"service: {time_scale: 0.01, concurrency: 5}", true},
		{"service: {time_scale: fast}", false},
		{"service: {env: {FORGERUN_DB_TIMEOUT: 5s, FORGERUN_MAX_RETRIES: 2, FORGERUN_WEBHOOK_ALLOW_PRIVATE: true}}", true},
		{"service: {env: {FORGERUN_TIME_SCALE: 5}}", false},
		{"service: {env: {FORGERUN_DB_TIMEOUT: {}}}", false},
		{"chaos: kill=30s,redis-pause=1m", true},
		{"chaos: kill", false},
		{"chaos: kill=30s,", false},
		{"expect: {refused: 5%, submit_p99: 1s}", true},
		{"expect: {refused: many}", false},
		{"arrival: {closed: {clients: 5, think: 1s..2s}}", true},
		{"arrival: {closed: {think: 1s}}", false},
		{"arrival: {open: [{rate: 5/s}]}", true},
		{"arrival: {open: [{for: 5s, rate: 5}, {for: 5s, from: 0, to: 30/m, arrivals: poisson}, {for: 1s, burst: 3}]}", true},
		{"arrival: {open: [{rate: 0.0001}]}", false},
		{"arrival: {open: [{rate: -1}]}", false},
		{"arrival: {open: [{rate: 5, from: 1}]}", false},
		{"arrival: {open: [{for: 5s, to: 1}]}", false},
		{"arrival: {open: [{burst: 5, arrivals: even}]}", false},
		{"arrival: {open: [{rate: 5, every: 1s}]}", false},
		{"arrival: {open: [{rate: 5}], closed: {clients: 1}}", false},
		{"arrival: {}", false},
		{"mix: []", false},
		{"mix: [{kind: ALL}, {kinds: ALL}, {kinds: [SUCCESS_FAST, PAYLOAD_INVALID]}, {type: EMIT_EVENT}]", true},
		{"mix: [{kind: success_fast}]", false},
		{"mix: [{kind: ALL, kinds: ALL}]", false},
		{"mix: [{kinds: [RUNS_LONG, RUNS_LONG]}]", false},
		{"mix: [{kind: ALL, type: EMIT_EVENT}]", false},
		{"mix: [{kind: ALL, type: DEFERRED, ahead: 1s..2s}]", true},
		{"mix: [{kind: ALL, type: DEFERRED}]", false},
		{"mix: [{kind: ALL, ahead: 1s}]", false},
		{"mix: [{kind: ALL, weight: 0}]", false},
		{"mix: [{kind: ALL, cancel: {in: RUNNING, after: 1s, share: 5%}, retry: {max: 3}, duplicate: {copies: 2, at_once: true}}]", true},
		{"mix: [{kind: ALL, cancel: {after: 1s}}]", false},
		{"mix: [{kind: ALL, batch: 5, duplicate: {key: same}}]", true},
		{"mix: [{kind: ALL, batch: 5, duplicate: {key: different}}]", false},
		{"mix: [{kind: ALL, params_bytes: 1048577}]", false},
		{"receivers: [{name: a, events: ['*', job.failed], answers: [{status: 500, after: 1s, share: 5%}]}]", true},
		{"receivers: [{name: a, callback: true, answers: [{hang: true}]}]", true},
		{"receivers: [{name: a, callback: true, events: ['*']}]", false},
		{"receivers: [{name: a, events: [job.done]}]", false},
		{"receivers: [{events: ['*']}]", false},
		{"receivers: [{name: a, answers: [{hang: true, reset: true}]}]", false},
		{"receivers: [{name: a, answers: [{hang: true, status: 500}]}]", false},
		{"receivers: [{name: a, answers: [{hang: true, after: 1s}]}]", false},
		{"receivers: [{name: a, answers: [{reset: true, status: 500}]}]", false},
		{"receivers: [{name: a, answers: [{reset: true, after: 1s}]}]", true},
		{"receivers: [{name: a, answers: [{status: 600}]}]", false},
	} {
		text := []byte(frame(test.members))
		_, err := scenario.Parse("x.yaml", text)
		require.Equal(t, test.good, err == nil, "parser, of %s: %v", test.members, err)
		err = schema.Validate(instance(t, text))
		require.Equal(t, test.good, err == nil, "schema, of %s: %v", test.members, err)
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

// objects are where each object of a scenario can be found: in the schema by its
// properties, in a file by this text with an unknown member.
var objects = []struct {
	path []string
	text string
}{
	{nil, "zzzzzzz: 1"},
	{[]string{"arrival"}, "arrival: {zzzzzzz: 1, closed: {clients: 1}}"},
	{[]string{"arrival", "closed"}, "arrival: {closed: {clients: 1, zzzzzzz: 1}}"},
	{[]string{"arrival", "open"}, "arrival: {open: [{rate: 1, zzzzzzz: 1}]}"},
	{[]string{"mix"}, "mix: [{kind: ALL, zzzzzzz: 1}]"},
	{[]string{"mix", "cancel"}, "mix: [{kind: ALL, cancel: {in: RUNNING, zzzzzzz: 1}}]"},
	{[]string{"mix", "retry"}, "mix: [{kind: ALL, retry: {zzzzzzz: 1}}]"},
	{[]string{"mix", "duplicate"}, "mix: [{kind: ALL, duplicate: {zzzzzzz: 1}}]"},
	{[]string{"receivers"}, "receivers: [{name: a, zzzzzzz: 1}]"},
	{[]string{"receivers", "answers"}, "receivers: [{name: a, answers: [{zzzzzzz: 1}]}]"},
	{[]string{"readers"}, "readers: {zzzzzzz: 1}"},
	{[]string{"schedules"}, "schedules: {zzzzzzz: 1}"},
	{[]string{"service"}, "service: {zzzzzzz: 1}"},
	{[]string{"service", "env"}, "service: {env: {zzzzzzz: 1}}"},
	{[]string{"expect"}, "expect: {zzzzzzz: 1}"},
}

func schemaRoot(t *testing.T) *object {
	t.Helper()
	var root object
	require.NoError(t, json.Unmarshal(scenario.Schema(), &root))
	return &root
}

// at is the object that a path of properties leads to.
func (root *object) at(path []string) *object {
	o := root
	for _, name := range path {
		o = o.Properties[name]
		if o.Items != nil {
			o = o.Items
		}
		if o.Ref != "" {
			o = root.Defs[strings.TrimPrefix(o.Ref, "#/$defs/")]
		}
	}
	return o
}

var allowedMembers = regexp.MustCompile(`unknown member "zzzzzzz"; allowed in [a-z ]+: (.*)$`)

// members are those that the parser knows in an object.
func members(t *testing.T, text string) []string {
	t.Helper()
	found := mistakes(t, frame(text))
	require.Len(t, found, 1, "%v", found)
	parts := allowedMembers.FindStringSubmatch(found[0])
	require.NotNil(t, parts, found[0])
	return strings.Split(parts[1], ", ")
}

func TestSchemaHasTheParsersMembers(t *testing.T) {
	t.Parallel()
	root := schemaRoot(t)
	for _, o := range objects {
		want := members(t, o.text)
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(root.at(o.path).Properties)), "%v", o.path)
	}
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
	root := schemaRoot(t)
	objectCount := 0
	var look func(path string, o *object)
	look = func(path string, o *object) {
		if o.Type == "object" {
			objectCount++
		}
		for name, p := range o.Properties {
			if p.Ref != "#/$defs/setting" {
				require.Greater(t, len(p.Description), 20, "%s/%s", path, name)
			}
			look(path+"/"+name, p)
		}
	}
	look("", root)
	for name, o := range root.Defs {
		require.NotEmpty(t, o.Description, name)
		look(name, o)
	}
	require.Equal(t, len(objects), objectCount, "objects of the schema that the tests here do not know")
}
