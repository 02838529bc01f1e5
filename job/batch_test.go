package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Promise: draft 7.2
func TestBatchStatusOfEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		succeeded, failed, canceled int
		want                        job.Status
	}{
		{3, 0, 0, "COMPLETED"},
		{2, 1, 0, "COMPLETED_WITH_ERRORS"},
		{1, 0, 4, "COMPLETED"},
		{1, 1, 1, "COMPLETED_WITH_ERRORS"},
		{0, 3, 0, "FAILED"},
		{0, 1, 4, "COMPLETED_WITH_ERRORS"},
		{0, 0, 2, "CANCELLED"},
	} {
		require.Equal(t, test.want, job.BatchStatus(test.succeeded, test.failed, test.canceled), "%+v", test)
	}
}

func sampleBatch(t *testing.T, accepted, refused int) *job.Batch {
	t.Helper()
	id := must(job.ParseID(idText))(t)
	b := &job.Batch{ID: id, CreatedAt: createdAt, CorrelationID: "order-17", Language: "en", Counts: map[job.State]int{}}
	for i := range accepted + refused {
		item := job.BatchItem{ItemID: fmt.Sprint(i), JobID: id, State: job.Queued}
		if i >= accepted {
			item = job.BatchItem{ItemID: fmt.Sprint(i), Refusal: &job.Refusal{Code: job.CodeValidationFailed, Detail: "No."}}
		}
		b.Items = append(b.Items, item)
	}
	return b
}

func TestOpenBatch(t *testing.T) {
	t.Parallel()
	b := sampleBatch(t, 3, 1)
	require.Equal(t, 1, b.Refused())
	for _, c := range []struct {
		counts map[job.State]int
		want   job.Status
	}{
		{map[job.State]int{job.Created: 1, job.Queued: 1, job.Assigned: 1}, "ACCEPTED"},
		{map[job.State]int{job.Queued: 2, job.Succeeded: 1}, "PROCESSING"},
		{map[job.State]int{job.Queued: 2, job.Running: 1}, "PROCESSING"},
	} {
		b.Counts = c.counts
		require.Equal(t, c.want, b.Status())
	}
	b.Outcome = &job.BatchOutcome{Status: job.StatusCompleted}
	require.EqualValues(t, "COMPLETED", b.Status(), "the outcome is final")
}

// Promise: draft 7.2
func TestBatchDocumentOfMixedEnds(t *testing.T) {
	t.Parallel()
	b := sampleBatch(t, 4, 1)
	b.Outcome = &job.BatchOutcome{
		Status: job.StatusCompletedWithErrors, CompletedAt: finishedAt, Succeeded: 2, Failed: 3,
		Failures: []job.ItemFailure{
			{ItemID: "1", JobID: b.ID, Status: job.StatusTimedOut, Reason: job.TimedOut, Detail: "The job ran longer than the execution limit.",
				Retryable: true, Stage: job.StageProcessing},
			{ItemID: "2", JobID: b.ID, Status: job.StatusFailed, Reason: job.FailedImmediately, Detail: "Stored.", Stage: job.StageValidation},
			{ItemID: "4", Status: job.StatusFailed, Detail: "The request has invalid values.", Stage: job.StageValidation},
		},
	}
	requireDocument(t, links.BatchDocument(b), `{
		"type": "https://forge.example/problems/batch-partially-failed",
		"title": "Batch partially failed",
		"status": 207,
		"detail": "2 of 5 items completed successfully, 3 failed. Only failed items are listed.",
		"instance": "/v1/batches/01890a5d-ac96-774b-bcce-b302099a8057",
		"jobId": "01890a5d-ac96-774b-bcce-b302099a8057",
		"jobStatus": "COMPLETED_WITH_ERRORS",
		"submittedAt": "2030-01-31T12:00:00.000001Z",
		"completedAt": "2030-01-31T12:00:05.000000Z",
		"correlationId": "order-17",
		"language": "en",
		"results": [
			{"itemId": "1", "status": "TIMED_OUT", "detail": "The job ran longer than the execution limit.", "retryable": true,
				"processingStage": "processing"},
			{"itemId": "2", "status": "FAILED", "detail": "Stored.", "retryable": false, "processingStage": "validation"},
			{"itemId": "4", "status": "FAILED", "detail": "The request has invalid values.", "retryable": false, "processingStage": "validation"}
		]
	}`)

	b.Language = "de"
	d := links.BatchDocument(b)
	require.Equal(t, "Stapel teilweise fehlgeschlagen", d.Title)
	require.Contains(t, d.Detail, "2 von 5")
	require.Equal(t, "Der Job lief länger, als die Grenze der Laufzeit erlaubt.", d.Results[0].Detail)
	require.Equal(t, "Der Eintrag wurde bei der Einreichung abgelehnt.", d.Results[2].Detail)
	require.Equal(t, "de", d.Language)

	english := links
	english.Language = "en"
	d = english.BatchDocument(b)
	require.Equal(t, []string{"Batch partially failed", "en", "The request has invalid values."},
		[]string{d.Title, d.Language, d.Results[2].Detail})
}

// Promise: draft 7.2
func TestBatchSummary(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		succeeded, failed, canceled int
		language, want              string
	}{
		{3, 0, 0, "en", "3 of 3 items completed successfully."},
		{2, 0, 1, "en", "2 of 3 items completed successfully, 1 was canceled."},
		{1, 0, 2, "en", "1 of 3 items completed successfully, 2 were canceled."},
		{0, 0, 3, "en", "0 of 3 items completed successfully, 3 were canceled."},
		{1, 1, 1, "en", "1 of 3 items completed successfully, 1 failed, 1 was canceled. The first 0 of 1 failed items are listed."},
		{1, 0, 1, "de", "1 von 2 Einträgen war erfolgreich, 1 wurde abgebrochen."},
		{2, 0, 2, "de", "2 von 4 Einträgen waren erfolgreich, 2 wurden abgebrochen."},
		{1, 0, 1, "fr", "1 élément sur 2 a réussi, 1 a été annulé."},
		{2, 0, 2, "fr", "2 éléments sur 4 ont réussi, 2 ont été annulés."},
		{2, 0, 0, "xx", "2 of 2 items completed successfully."},
	} {
		b := sampleBatch(t, test.succeeded+test.failed+test.canceled, 0)
		b.Language = test.language
		b.Outcome = &job.BatchOutcome{Status: job.BatchStatus(test.succeeded, test.failed, test.canceled), CompletedAt: finishedAt,
			Succeeded: test.succeeded, Failed: test.failed, Canceled: test.canceled}
		d := links.BatchDocument(b)
		require.Equal(t, test.want, d.Detail)
		require.Equal(t, test.failed > 0, d.IsProblem())
		require.Equal(t, b.Outcome.Status, d.JobStatus)
		require.NotNil(t, d.CompletedAt)
	}
}

// Promise: draft 7.1
func TestBatchDocumentSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	b := sampleBatch(t, 200, 0)
	b.Outcome = &job.BatchOutcome{Status: job.StatusFailed, CompletedAt: finishedAt, Failed: 200,
		Failures: make([]job.ItemFailure, job.MaxFailedItems)}
	d := links.BatchDocument(b)
	require.Equal(t, 500, d.Status)
	require.Equal(t, "https://forge.example/problems/batch-failed", d.Type)
	require.Len(t, d.Results, 50)
	require.Contains(t, d.Detail, "The first 50 of 200 failed items are listed.")
}

// Promise: patterns Polling
func TestEstimatedCompletion(t *testing.T) {
	t.Parallel()
	d := &job.Definition{DurationMS: 10_000}
	started := createdAt
	running := &job.Job{State: job.Running, StartedAt: &started, Definition: d}
	require.Equal(t, started.Add(5*time.Second), *running.EstimatedCompletion(0.5))
	scheduled := &job.Job{State: job.Created, RunAt: started, Definition: d}
	require.Equal(t, started.Add(10*time.Second), *scheduled.EstimatedCompletion(1))
	for _, j := range []*job.Job{
		{State: job.Queued, RunAt: started, Definition: d},
		{State: job.Succeeded, StartedAt: &started, Definition: d},
		{State: job.Running, StartedAt: &started},
		{State: job.Running, Definition: d},
	} {
		require.Nil(t, j.EstimatedCompletion(1), j.State)
	}
}
