package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// Ids and times of the samples, the same as in the OpenAPI document.
var (
	sampleJob   = mustID("0190a1b2-c3d4-7000-8000-000000000001")
	sampleBatch = mustID("0190a1b2-c3d4-7000-8000-0000000000b1")
	submittedAt = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	completedAt = submittedAt.Add(5020 * time.Millisecond)
)

func mustID(text string) job.ID {
	id, err := job.ParseID(text)
	if err != nil {
		panic(err)
	}
	return id
}

// sampleOf returns a sample response or outcome document for a problem type, built by the same code as real ones.
func sampleOf(e entry, links job.Links) string {
	switch {
	case e.Batch:
		return pretty(links.BatchDocument(batchSample(e.Slug)))
	case e.Failure:
		failure := job.NewFailure(job.Reason(e.Slug), 1, job.Backoff{Base: 2 * time.Second, Max: time.Minute})
		origin := job.Origin{JobID: sampleJob, CreatedAt: submittedAt, CorrelationID: "order-4711", Language: "en",
			Scenario: scenarioOf(job.Reason(e.Slug))}
		attempt := job.Attempt{Number: 1, State: job.Failed, Outcome: "FAILED", FinishedAt: &completedAt, Failure: failure}
		return pretty(links.Document(origin, attempt))
	}
	p := problem.Of(links, &job.Error{Code: e.Code, Detail: sampleDetails[e.Code]})
	p.Instance = "urn:uuid:0190a1b2-c3d4-7000-8000-0000000000f1"
	switch e.Code {
	case job.CodeValidationFailed:
		p.Violations = []job.Violation{{Pointer: "/execution_at", Detail: "A DEFERRED job requires an execution_at."}}
		p.Detail = "The request has invalid values. /execution_at: A DEFERRED job requires an execution_at."
	case job.CodeMalformed:
		p.Violations = []job.Violation{{Pointer: "/work_knd", Detail: "Unknown member. Did you mean work_kind?"}}
		p.Detail = "The body does not have the expected form. /work_knd: Unknown member. Did you mean work_kind?"
	case job.CodeJobGone, job.CodeResultGone:
		p.ExpiredAt = job.TimeOf(&completedAt)
	case job.CodeIdempotencyConflict:
		p.JobID = &sampleJob
	case job.CodeConflict:
		p.State, p.Reason = job.Failed, "ATTEMPTS_EXHAUSTED"
	}
	return head(e) + "\n" + pretty(p)
}

// sampleDetails replaces the standard details that are too general for a sample.
var sampleDetails = map[job.Code]string{
	job.CodeMethodNotAllowed:   "This resource does not support that method. It supports GET, HEAD, DELETE.",
	job.CodeInvalidCredentials: "The request has no Authorization header. Send your API key in a single header: Authorization: Bearer frk_...",
	job.CodeForbidden:          "This API key has the scope read, but this request needs submit. Use a key with that scope.",
	job.CodeConflict:           "The job has used all of its 4 attempts.",
	job.CodeRateLimited:        "This client can send 6000 requests per minute.",
	job.CodeJobNotFinished:     "The job is RUNNING: attempt 1 has not ended, and has no report yet.",
	job.CodeRequestNotFound:    "There is no resource at this path. Did you mean /v1/jobs?",
	job.CodeJobGone:            "The job was deleted.",
	job.CodeIdempotencyConflict: "This idempotency key was used for a different request, which created " +
		"job 0190a1b2-c3d4-7000-8000-000000000001. Repeat that request unchanged, or use a new key.",
	job.CodePayloadTooLarge: "The request body is larger than this server allows.",
	job.CodeResultNotFound:  "The job was CANCELED, so it has no result.",
	job.CodeWebhookNotFound: "No webhook with this id was found.",
	job.CodeBatchNotFound:   "No batch with this id was found.",
	job.CodeJobNotFound:     "No job with this id was found.",
	job.CodeNotAcceptable: "This resource is available as application/json or application/problem+json, but the Accept header " +
		"excludes that.",
	job.CodeResultGone:      "The result has expired.",
	job.CodeClientNotFound:  "No client with this id was found.",
	job.CodeBulkNotFound:    "No bulk operation with this id was found.",
	job.CodeScheduleMissing: "No schedule with this id was found.",
}

// scenarioOf returns a scenario that makes a job fail for the reason. If no scenario fails for the reason, scenarioOf returns a scenario
// that succeeds.
func scenarioOf(reason job.Reason) job.Scenario {
	kind := job.SuccessFast
	if reason == job.CustomFailed {
		kind = job.Custom
	}
	for _, k := range job.AllKinds() {
		if spec, ok := job.SpecOf(k, 2*time.Minute); ok && spec.Reason == reason {
			kind = k
			break
		}
	}
	spec, _ := job.SpecOf(kind, 2*time.Minute)
	return job.Scenario{WorkKind: kind, DurationMS: spec.DurationMS, ExpectedOutcome: spec.Expected}
}

func head(e entry) string {
	text := fmt.Sprintf("HTTP/1.1 %d %s\nContent-Type: application/problem+json\n", e.Status, http.StatusText(e.Status))
	switch {
	case problem.Waits(e.Code, e.Status):
		text += "Retry-After: 2\n"
	case e.Status == http.StatusUnauthorized:
		text += "WWW-Authenticate: Bearer\n"
	case e.Code == job.CodeMethodNotAllowed:
		text += "Allow: GET, HEAD, DELETE\n"
	}
	return text
}

func repeatOf(e entry) string {
	switch {
	case e.Batch, e.Failure:
		return ""
	case e.Code == job.CodeJobNotFinished:
		return "Yes, after Retry-After seconds."
	case e.Status == http.StatusTooManyRequests:
		return "Yes, but only after Retry-After seconds. Nothing was done."
	case problem.Waits(e.Code, e.Status):
		return "Yes, after Retry-After seconds and with the same Idempotency-Key: the request may have had an effect."
	case e.Status >= http.StatusInternalServerError:
		return "Yes, but later and only a few times, with the same Idempotency-Key: the request may have had an effect."
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return "Only with other credentials. Failed authentication attempts are limited."
	case e.Code == job.CodeConflict:
		return "Only after the state has changed."
	case e.Status == http.StatusNotFound, e.Status == http.StatusGone:
		return "No: the response stays the same."
	}
	return "Only after a change to the request; otherwise the response is the same. Nothing was done."
}

func batchSample(slug string) *job.Batch {
	failed := job.ItemFailure{ItemID: "1", JobID: sampleJob, Status: job.StatusFailed, Reason: job.DependencyFailed,
		Detail: job.DependencyFailed.Spec().Detail, Retryable: true, Stage: job.DependencyFailed.Spec().Stage}
	outcome := &job.BatchOutcome{Status: job.StatusCompletedWithErrors, CompletedAt: completedAt, Succeeded: 1, Failed: 1}
	outcome.Failures = []job.ItemFailure{failed}
	if slug == job.BatchFailed {
		second := failed
		second.ItemID = "0"
		outcome.Status, outcome.Succeeded, outcome.Failed = job.StatusFailed, 0, 2
		outcome.Failures = []job.ItemFailure{second, failed}
	}
	return &job.Batch{ID: sampleBatch, CreatedAt: submittedAt, Language: "en", Items: make([]job.BatchItem, 2), Outcome: outcome}
}

func pretty(v any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return out.String()
}
