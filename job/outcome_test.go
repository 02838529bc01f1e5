package job_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Promise: contract 14e
// Promise: patterns Lifecycle States a
func TestStatusOf(t *testing.T) {
	t.Parallel()
	for s, want := range map[job.State]job.Status{
		"CREATED": "ACCEPTED", "QUEUED": "ACCEPTED", "ASSIGNED": "ACCEPTED", "RUNNING": "PROCESSING",
		"SUCCEEDED": "COMPLETED", "FAILED": "FAILED", "CANCELED": "CANCELLED",
	} {
		require.Equal(t, want, job.StatusOf(s, nil), s)
	}
	for _, r := range job.Reasons {
		want := job.Status("FAILED")
		if r.Code == "RFA_EXEC_TIMEOUT" {
			want = "TIMED_OUT"
		}
		require.Equal(t, want, job.StatusOf(job.Failed, &job.Failure{Code: r.Code}), r.Reason)
	}
	require.EqualValues(t, "ACCEPTED", job.StatusOf(job.Queued, &job.Failure{Code: job.CodeTimeout}),
		"what an earlier attempt died of does not count once it is queued again")
	require.EqualValues(t, "COMPLETED_WITH_ERRORS", job.StatusCompletedWithErrors)
}

var (
	links      = job.Links{PublicURL: "https://forge.example"}
	createdAt  = time.Date(2030, 1, 31, 14, 0, 0, 1_000, time.FixedZone("", 2*3600))
	finishedAt = time.Date(2030, 1, 31, 12, 0, 5, 0, time.UTC)
)

func sampleJob(t *testing.T) *job.Job {
	t.Helper()
	id := must(job.ParseID(idText))(t)
	return &job.Job{ID: id, State: job.Running, Attempt: 2, MaxAttempts: 4, CreatedAt: createdAt}
}

func requireDocument(t *testing.T, d job.Document, want string) {
	t.Helper()
	text := must(json.Marshal(d))(t)
	require.JSONEq(t, want, string(text))
}

func TestDocumentOfAFailure(t *testing.T) {
	t.Parallel()
	j := sampleJob(t)
	j.WorkKind = job.FailAfterRetryable
	a := job.Attempt{Number: 2, State: job.Failed, FinishedAt: &finishedAt, Failure: job.NewFailure(job.FailedImmediately, 2, usual)}
	a.Failure.RetryAfter = 5
	text := must(json.Marshal(links.Document(j.Origin(), a)))(t)
	require.Contains(t, string(text), `"retryable":false`)
	require.NotContains(t, string(text), "retryAfter")

	require.Equal(t, &job.Scenario{WorkKind: job.FailAfterRetryable}, links.Document(j.Origin(), a).Scenario, "a damaged definition")
	j.WorkKind = ""
	require.Nil(t, links.Document(j.Origin(), a).Scenario)
}

// Promise: draft 3.6, 3.7, 6.7
func TestDocumentRules(t *testing.T) {
	t.Parallel()
	for _, r := range job.Reasons {
		for attempt := 1; attempt <= 3; attempt++ {
			f := job.NewFailure(r.Reason, attempt, job.Backoff{Base: time.Millisecond, Max: time.Second})
			d := links.Document(sampleJob(t).Origin(), job.Attempt{Number: attempt, State: job.Failed, FinishedAt: &finishedAt, Failure: f})
			require.True(t, strings.HasPrefix(d.Type, "https://forge.example/problems/"))
			require.NotEmpty(t, d.Title)
			require.NotEmpty(t, d.Detail)
			require.NotEmpty(t, d.ProcessingStage)
			if d.Code == job.CodeDependencyTimeout {
				require.Equal(t, job.StageProcessing, d.ProcessingStage, r.Reason)
			}
			require.Equal(t, statuses[d.Code], d.Status)
			require.NotNil(t, d.CompletedAt)
			require.NotNil(t, d.Retryable)
			require.Equal(t, *d.Retryable, d.RetryAfter >= 1)
		}
	}
}

func TestCanRetry(t *testing.T) {
	t.Parallel()
	for _, s := range job.States {
		for attempt := 1; attempt <= 5; attempt++ {
			for _, r := range job.Reasons {
				j := job.Job{State: s, Attempt: attempt, MaxAttempts: 4, Failure: job.NewFailure(r.Reason, attempt, job.Backoff{})}
				require.Equal(t, s == "FAILED" && attempt < 4 && r.Retryable, j.CanRetry(), "%s, attempt %d, %s", s, attempt, r.Reason)
			}
			require.False(t, (&job.Job{State: s, Attempt: attempt, MaxAttempts: 4}).CanRetry(), "without a failure")
		}
	}
}

// Promise: patterns Progress
func TestProgressJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(job.Progress{
		Percentage: 45, Phase: "WORKING", StepsCompleted: 2, StepsTotal: 5,
		ItemsProcessed: 4500, ItemsTotal: 10000, UpdatedAt: job.Time(finishedAt),
	})
	require.NoError(t, err)
	require.JSONEq(t, `{"percentage":45,"phase":"WORKING","steps_completed":2,"steps_total":5,
		"items_processed":4500,"items_total":10000,"updated_at":"2030-01-31T12:00:05.000000Z"}`, string(text))
}

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

// requireConforming also checks the rules that a schema cannot express (async-problem-details, sections 3, 5.1, 6.1 and 10.3).
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

// Promise: draft 3.1
func TestEveryDocumentConformsToTheDraft(t *testing.T) {
	t.Parallel()
	schema := draftSchema(t)
	require.Error(t, schema.Validate(map[string]any{"retryAfter": -1.0}), "the schema must be able to refuse")
	require.Error(t, schema.Validate(map[string]any{"submittedAt": "yesterday"}))

	for _, language := range job.Languages {
		o := sampleJob(t).Origin()
		o.Language, o.CorrelationID = language, "order-17"
		for _, s := range job.States {
			if s != job.Failed { // only a FAILED attempt has a failure in its document
				stale := job.NewFailure(job.TimedOut, 1, job.Backoff{})
				d := links.Document(o, job.Attempt{Number: 1, State: s, FinishedAt: &finishedAt, Failure: stale})
				require.False(t, d.IsProblem())
				requireConforming(t, schema, d)
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
