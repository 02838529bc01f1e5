package client_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestCustomParams(t *testing.T) {
	t.Parallel()
	seed, no, body, at := int64(0), false, "", client.Span(0)
	for want, b := range map[string]client.Behavior{
		`{"behavior":{}}`: {},
		`{"behavior":{"seed":0,"duration":"1.5s","jitter":"200ms","steps":3,"cpu":0.5,"memory_bytes":1,"io_bytes":2,
			"failures":[{"attempts":[1,2],"after":"0s","problem":{"type":"urn:x","title":"T","status":409,"detail":"d","code":"RFA_INTERNAL",
				"retryable":false,"stage":"storage","item":{"a":1}}},{"attempts":[3],"problem":{"retryAfter":2}}],
			"result":{"media_type":"text/plain","body":""},"emit":[{"name":"a","data":[1],"after":"1m0s"},{"name":"b"}]}}`: {
			Seed: &seed, Duration: client.Span(1500 * time.Millisecond), Jitter: client.Span(200 * time.Millisecond), Steps: 3, CPU: 0.5,
			MemoryBytes: 1, IOBytes: 2,
			Failures: []client.PlannedFailure{{Attempts: []int{1, 2}, After: &at, Problem: client.PlannedProblem{Type: "urn:x", Title: "T",
				Status: 409, Detail: "d", Code: "RFA_INTERNAL", Retryable: &no, Stage: "storage",
				Extensions: map[string]any{"item": map[string]int{"a": 1}}}},
				{Attempts: []int{3}, Problem: client.PlannedProblem{RetryAfter: 2}}},
			Result: &client.PlannedResult{MediaType: "text/plain", Body: &body},
			Emit:   []client.PlannedEvent{{Name: "a", Data: json.RawMessage(`[1]`), After: client.Span(time.Minute)}, {Name: "b"}},
		},
	} {
		got := must(json.Marshal(client.CustomParams{Behavior: b}))(t)
		require.JSONEq(t, want, string(got))
	}
}
