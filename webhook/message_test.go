package webhook

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

const mimeProblem = "application/problem+json"

var links = job.Links{PublicURL: publicURL, Absolute: true, Language: "en"}

func occurrenceOf(name string, prev, next job.State, change func(o *job.Occurrence)) job.Occurrence {
	o := failedOccurrence(job.DependencyFailed)
	o.Name, o.Prev, o.Next, o.Ended = name, prev, next, nil
	if change != nil {
		change(&o)
	}
	return o
}

var outcomes = map[job.State]job.Outcome{
	job.Succeeded: job.OutcomeSuccess, job.Failed: job.OutcomeFailed, job.Canceled: job.OutcomeCanceled,
}

func ended(s job.State, r job.Reason) func(o *job.Occurrence) {
	return func(o *job.Occurrence) {
		a := *failedOccurrence(r).Ended
		if a.State = s; s != job.Failed {
			a.Failure = nil
		}
		a.Outcome, o.Ended = outcomes[s], &a
	}
}

func sampleBatch(status job.Status, failed int) job.Occurrence {
	b := &job.Batch{
		ID: job.ID{15: 9}, CreatedAt: createdAt, Language: "fr",
		Outcome: &job.BatchOutcome{Status: status, CompletedAt: finishedAt, Succeeded: 1, Failed: failed},
	}
	for range failed {
		b.Outcome.Failures = append(b.Outcome.Failures, job.ItemFailure{
			ItemID: "a<b", JobID: jobID, Status: job.StatusFailed, Reason: job.FailedOnce, Detail: "No.", Stage: job.StageProcessing,
		})
	}
	b.Items = make([]job.BatchItem, 1+failed)
	return job.Occurrence{Event: job.Event{ID: eventID, Name: job.EventBatchCompleted, At: eventAt, Data: []byte(`{}`)}, Batch: b}
}

const emittedData = `{"data": {"html": "<b>&</b>", "n": 1.50, "u": "ü\u2028"}, "name": "order.shipped", "work_kind": "SUCCESS_FAST",
	"duration_ms": 1, "expected_outcome": "SUCCEEDED"}`

func TestMessages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		occurrence job.Occurrence
		mediaType  string
		status     string
		members    map[string]any
	}{
		"created": {occurrenceOf(job.EventCreated, "", job.Created, nil), mimeJSON, "ACCEPTED",
			map[string]any{"attempt": 1.0, "correlationId": "order-17"}},
		"queued":   {occurrenceOf(job.EventQueued, job.Created, job.Queued, nil), mimeJSON, "ACCEPTED", nil},
		"assigned": {occurrenceOf(job.EventAssigned, job.Queued, job.Assigned, nil), mimeJSON, "ACCEPTED", nil},
		"running":  {occurrenceOf(job.EventRunning, job.Assigned, job.Running, nil), mimeJSON, "PROCESSING", nil},
		"expired":  {occurrenceOf(job.EventLeaseExpired, job.Assigned, job.Queued, nil), mimeJSON, "ACCEPTED", nil},
		"retried": {occurrenceOf(job.EventRetried, job.Failed, job.Queued, func(o *job.Occurrence) { o.Attempt = 2 }), mimeJSON, "ACCEPTED",
			map[string]any{
				"attempt": 2.0, "instance": publicURL + job.AttemptPath(jobID, 2),
			}},
		"succeeded": {occurrenceOf(job.EventSucceeded, job.Running, job.Succeeded, ended(job.Succeeded, "")), mimeJSON, "COMPLETED",
			map[string]any{"completedAt": "2030-01-31T12:00:05.000000Z"}},
		"canceled": {occurrenceOf(job.EventCanceled, job.Running, job.Canceled, ended(job.Canceled, "")), mimeJSON, "CANCELLED", nil},
		"failed": {failedOccurrence(job.FailedImmediately), mimeProblem, "FAILED", map[string]any{
			"type": publicURL + "/problems/failed-immediately", "retryable": false,
		}},
		"timed out":         {failedOccurrence(job.TimedOut), mimeProblem, "TIMED_OUT", nil},
		"retries exhausted": {occurrenceOf(job.EventRetriesExhausted, "", "", ended(job.Failed, job.FailedAgain)), mimeProblem, "FAILED", nil},
		"emitted": {occurrenceOf(job.EventEmitted, "", "", func(o *job.Occurrence) { o.Data = []byte(emittedData) }), mimeJSON, "PROCESSING",
			map[string]any{
				"emitted": map[string]any{"name": "order.shipped", "data": map[string]any{"html": "<b>&</b>", "n": 1.5, "u": "ü\u2028"}},
			}},
		"batch":            {sampleBatch(job.StatusCompleted, 0), mimeJSON, "COMPLETED", map[string]any{"jobId": job.ID{15: 9}.String()}},
		"batch with error": {sampleBatch(job.StatusCompletedWithErrors, 2), mimeProblem, "COMPLETED_WITH_ERRORS", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := requireStable(t, test.occurrence, job.ContentBinary)
			require.Equal(t, test.mediaType, m.contentType)
			document := map[string]any{}
			require.NoError(t, json.Unmarshal(m.body, &document))
			require.Equal(t, test.status, document["jobStatus"])
			requireScenario(t, test.occurrence, document)
			requireEnglish(t, document, m.language)
			for member, want := range test.members {
				require.Equal(t, want, document[member], member)
			}
			_, completed := document["completedAt"]
			require.Equal(t, test.occurrence.Ended != nil || test.occurrence.Batch != nil, completed)
			require.NotContains(t, string(m.body), `\u003c`, "no escapes for HTML")
			requireStructured(t, test.occurrence, m)
		})
	}
}

func requireScenario(t *testing.T, o job.Occurrence, document map[string]any) {
	t.Helper()
	if o.JobID.IsZero() {
		require.NotContains(t, document, "scenario")
		return
	}
	require.Equal(t, map[string]any{"workKind": "FAIL_AFTER_RETRYABLE", "durationMs": 5000.0, "expectedOutcome": "FAILED"},
		document["scenario"])
}

func requireEnglish(t *testing.T, document map[string]any, language string) {
	t.Helper()
	if document["detail"] == nil {
		require.Empty(t, language)
		require.NotContains(t, document, "language")
		return
	}
	require.Equal(t, "en", language)
	require.Equal(t, "en", document["language"])
	require.NotRegexp(t, "[äöüéÉ]|Der |Le ", document["detail"])
}

func requireStable(t *testing.T, o job.Occurrence, mode job.ContentMode) message {
	t.Helper()
	first := must(render(links, &o, mode, fault.Effect{}))(t)
	second := must(render(links, &o, mode, fault.Effect{}))(t)
	require.Equal(t, first, second)
	require.NotContains(t, string(first.body), "\n")
	return first
}

func requireStructured(t *testing.T, o job.Occurrence, binary message) {
	t.Helper()
	m := requireStable(t, o, job.ContentStructured)
	require.Equal(t, "application/cloudevents+json", m.contentType)
	require.Empty(t, m.attributes)
	var envelope map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(m.body, &envelope))
	require.Equal(t, string(binary.body), string(envelope["data"]))
	require.JSONEq(t, `"`+binary.contentType+`"`, string(envelope["datacontenttype"]))
	require.Len(t, envelope, len(binary.attributes)+2)
	for _, a := range binary.attributes {
		require.JSONEq(t, `"`+a.value+`"`, string(envelope[strings.TrimPrefix(a.name, "ce-")]), a.name)
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	at := func(o job.Occurrence) map[string]string {
		all := map[string]string{}
		for _, a := range requireStable(t, o, job.ContentBinary).attributes {
			all[a.name] = a.value
		}
		return all
	}
	common := map[string]string{
		"ce-specversion": "1.0", "ce-id": eventID.String(), "ce-source": "https://forge.example/v1", "ce-time": "2030-01-31T12:00:05.123456Z",
	}
	with := func(more map[string]string) map[string]string {
		for k, v := range common {
			more[k] = v
		}
		return more
	}
	require.Equal(t, with(map[string]string{
		"ce-type": "job.failed", "ce-subject": "jobs/" + jobID.String(), "ce-sequence": "4", "ce-sequencetype": "Integer",
		"ce-workkind": "FAIL_AFTER_RETRYABLE",
	}), at(failedOccurrence(job.TimedOut)))
	require.Equal(t, with(map[string]string{"ce-type": "batch.completed", "ce-subject": "batches/" + job.ID{15: 9}.String()}),
		at(sampleBatch(job.StatusCompleted, 0)))
	require.Equal(t, with(map[string]string{"ce-type": "webhook.test", "ce-subject": "webhooks/" + webhookID.String()}), at(testOccurrence()))
}

func testOccurrence() job.Occurrence {
	return job.Occurrence{
		Event:   job.Event{ID: eventID, Name: job.EventWebhookTest, At: eventAt, Data: []byte(`{"webhookId": "` + webhookID.String() + `"}`)},
		Webhook: webhookID,
	}
}

func TestMessagesOfOneEventAreTheSame(t *testing.T) {
	t.Parallel()
	o := failedOccurrence(job.TimedOut)
	want := requireStable(t, o, job.ContentBinary)
	zone := time.FixedZone("", 2*3600)
	o.At, o.Origin.CreatedAt = o.At.In(zone), o.Origin.CreatedAt.In(zone)
	moved := finishedAt.In(zone)
	o.Ended.FinishedAt = &moved
	require.Equal(t, want, requireStable(t, o, job.ContentBinary))
	o.Origin.Language = "fr"
	require.Equal(t, want, requireStable(t, o, job.ContentBinary))
}

func TestReasonOfADisabledWebhookIsEnglish(t *testing.T) {
	t.Parallel()
	o := testOccurrence()
	require.Empty(t, requireStable(t, o, job.ContentBinary).language)
	o.Name = job.EventWebhookDisabled
	require.Equal(t, "en", requireStable(t, o, job.ContentBinary).language)
}
