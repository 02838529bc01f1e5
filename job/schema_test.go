package job_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// draftSchema compiles the JSON Schema of the draft's section 8, as it stands
// there.
func draftSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text := must(os.ReadFile("testdata/async-job-problem-details.schema.json"))(t)
	schema := must(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("draft.json", schema))
	compiled := must(c.Compile("draft.json"))(t)
	return compiled
}

// requireConforming checks a document against the schema, and against the
// rules that the schema cannot express (sections 3, 5.1, 6.1 and 10.3).
func requireConforming(t *testing.T, schema *jsonschema.Schema, d job.Document) {
	t.Helper()
	text := must(json.Marshal(d))(t)
	value := must(jsonschema.UnmarshalJSON(bytes.NewReader(text)))(t)
	require.NoError(t, schema.Validate(value), "%s", text)

	members := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &members))
	for _, name := range []string{"jobId", "jobStatus", "submittedAt"} {
		require.Contains(t, members, name, "full conformance, section 3.1.1: %s", text)
	}
	for _, name := range []string{"submittedAt", "completedAt"} {
		if at, ok := members[name]; ok {
			require.Regexp(t, regexp.MustCompile(`Z$`), at, "sections 3.4 and 3.5: UTC")
		}
	}
	terminal := map[job.Status]bool{"COMPLETED": true, "FAILED": true, "CANCELLED": true, "TIMED_OUT": true, "COMPLETED_WITH_ERRORS": true}
	_, completed := members["completedAt"]
	require.Equal(t, terminal[d.JobStatus], completed, "section 3.5: %s", text)
	_, wait := members["retryAfter"]
	require.Equal(t, members["retryable"] == true, wait, "section 3.7: %s", text)
	if d.IsProblem() {
		require.NotEqual(t, "about:blank", d.Type, "section 6.1")
		require.NotEmpty(t, d.Detail, "section 4.1")
		require.NotEmpty(t, d.Title)
		require.NotZero(t, d.Status)
	}
	require.NotEmpty(t, d.Instance, "section 6.1")
}

func TestEveryDocumentConformsToTheDraft(t *testing.T) {
	t.Parallel()
	schema := draftSchema(t)
	require.Error(t, schema.Validate(map[string]any{"retryAfter": -1.0}), "the schema must be able to refuse")
	require.Error(t, schema.Validate(map[string]any{"submittedAt": "yesterday"}))

	for _, language := range job.Languages {
		o := sampleJob(t).Origin()
		o.Language, o.CorrelationID = language, "order-17"
		for _, s := range job.States {
			if s != job.Failed {
				requireConforming(t, schema, links.Document(o, job.Attempt{Number: 1, State: s, FinishedAt: &finishedAt}))
			}
		}
		for _, r := range job.Reasons {
			f := job.NewFailure(r.Reason, 3, job.Backoff{Base: time.Second, Max: time.Minute})
			requireConforming(t, schema, links.Document(o, job.Attempt{Number: 3, State: job.Failed, FinishedAt: &finishedAt, Failure: f}))
		}
		for _, b := range endedBatches(t) {
			b.Language = language
			requireConforming(t, schema, links.BatchDocument(b))
		}
	}
}

// endedBatches has a batch of each status, and one under way.
func endedBatches(t *testing.T) []*job.Batch {
	t.Helper()
	batches := []*job.Batch{sampleBatch(t, 2, 0)}
	for _, ends := range [][3]int{{3, 0, 0}, {1, 1, 1}, {0, 2, 0}, {0, 0, 2}, {40, 60, 0}} {
		b := sampleBatch(t, ends[0]+ends[1]+ends[2], 0)
		o := &job.BatchOutcome{
			Status: job.BatchStatus(ends[0], ends[1], ends[2]), CompletedAt: finishedAt,
			Succeeded: ends[0], Failed: ends[1], Canceled: ends[2],
		}
		for i := range min(ends[1], job.MaxFailedItems) {
			reason := job.Reasons[i%len(job.Reasons)]
			f := job.NewFailure(reason.Reason, 1, job.Backoff{Base: time.Second, Max: time.Minute})
			o.Failures = append(o.Failures, job.ItemFailure{
				ItemID: b.Items[i].ItemID, Status: job.StatusOf(job.Failed, f), Reason: f.Reason,
				Detail: f.Detail, Retryable: f.Retryable, Stage: f.Stage,
			})
		}
		b.Outcome = o
		batches = append(batches, b)
	}
	return batches
}
