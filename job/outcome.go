package job

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Status is the jobStatus of an outcome document (async-problem-details, section 4).
type Status string

// Values of jobStatus.
const (
	StatusAccepted            Status = "ACCEPTED"
	StatusProcessing          Status = "PROCESSING"
	StatusCompleted           Status = "COMPLETED"
	StatusFailed              Status = "FAILED"
	StatusCancelled           Status = "CANCELLED"
	StatusTimedOut            Status = "TIMED_OUT"
	StatusCompletedWithErrors Status = "COMPLETED_WITH_ERRORS"
)

// StatusOf returns the Status for a job's state. For FAILED, the Status depends on the failure's code.
func StatusOf(s State, failure *Failure) Status {
	switch s {
	case Running:
		return StatusProcessing
	case Succeeded:
		return StatusCompleted
	case Canceled:
		return StatusCancelled
	case Failed:
		if failure != nil && failure.Code == CodeTimeout {
			return StatusTimedOut
		}
		return StatusFailed
	default:
		return StatusAccepted
	}
}

// Document is the outcome document of an attempt or a batch (async-problem-details, sections 3 and 7). It has the members of RFC 9457 and
// of async-problem-details. Without a failure, only two members of RFC 9457 are set: Instance and, for a batch, Detail.
type Document struct {
	Type     string `json:"type,omitempty"`
	Title    string `json:"title,omitempty"`
	Status   int    `json:"status,omitempty"` // HTTP status that a response with this problem would have
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Code     Code   `json:"code,omitempty"`

	JobID           ID     `json:"jobId"`
	JobStatus       Status `json:"jobStatus"`
	SubmittedAt     Time   `json:"submittedAt"`
	CompletedAt     *Time  `json:"completedAt,omitempty"` // final attempts only
	Retryable       *bool  `json:"retryable,omitempty"`   // failures only
	RetryAfter      int    `json:"retryAfter,omitempty"`  // in seconds after completedAt; 0 unless the failure is retryable
	ProcessingStage Stage  `json:"processingStage,omitempty"`
	CorrelationID   string `json:"correlationId,omitempty"`

	// The following members are extensions of ForgeRun.
	Attempt  int       `json:"attempt,omitempty"`  // absent in a batch's document
	Scenario *Scenario `json:"scenario,omitempty"` // absent in a batch's document
	Language string    `json:"language,omitempty"` // language of Title and Detail, one of Languages; "" if neither is set

	Results []ItemOutcome `json:"results,omitempty"` // a batch's failed items, at most MaxFailedItems

	extensions json.RawMessage // JSON object of further members, from the planned failure of a CUSTOM job
}

// MarshalJSON encodes d without escapes for HTML. The caller must escape the text before putting it into HTML.
func (d Document) MarshalJSON() ([]byte, error) {
	type plain Document
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(plain(d)); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(d.extensions) <= len("{}") {
		return text, nil
	}
	return append(append(text[:len(text)-1], ','), d.extensions[1:]...), nil
}

// Scenario is the work that the catalogue plans for a job (API contract, section 6). It never changes. If the definition is damaged, only
// WorkKind is set.
type Scenario struct {
	WorkKind        Kind   `json:"workKind"`
	DurationMS      int64  `json:"durationMs,omitempty"`
	ExpectedOutcome string `json:"expectedOutcome,omitempty"` // final state of attempt 1
}

// IsProblem reports whether d is sent as application/problem+json (async-problem-details, section 11.7). Other documents are plain JSON.
func (d Document) IsProblem() bool { return d.Type != "" }

// Encode encodes d as one line of JSON, without escapes for HTML, and returns its media type (async-problem-details, section 11.7).
func (d Document) Encode() (mediaType string, body []byte, err error) {
	mediaType = "application/json"
	if d.IsProblem() {
		mediaType = "application/problem+json"
	}
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return "", nil, err
	}
	return mediaType, bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Links builds outcome documents and their links.
type Links struct {
	PublicURL string // base of all addresses, without a trailing slash
	Absolute  bool   // links begin with PublicURL; set for pushed documents, because their receivers cannot resolve a path
	Language  string // negotiated language of all texts; "" means the language of the request that created the job or batch
}

func (l Links) languageOf(requested string) string {
	if language := cmp.Or(l.Language, requested); slices.Contains(Languages, language) {
		return language
	}
	return Languages[0]
}

// ProblemType returns the URI of a problem type, from an error code's slug or a failure's reason.
func (l Links) ProblemType(slug string) string { return l.PublicURL + "/problems/" + slug }

// At returns the address of an API path. The address begins with PublicURL if Absolute is set, or if PublicURL has a path. In the second
// case, a reverse proxy may forward only requests below this path to the API.
func (l Links) At(path string) string {
	_, host, _ := strings.Cut(l.PublicURL, "://")
	if l.Absolute || strings.Contains(host, "/") {
		return l.PublicURL + path
	}
	return path
}

// AttemptPath returns the path of an attempt. The resource never changes once the attempt has ended.
func AttemptPath(id ID, attempt int) string {
	return "/v1/jobs/" + id.String() + "/attempts/" + strconv.Itoa(attempt)
}

// Origin is the part of a job's or batch's request that outcome documents need. It never changes.
type Origin struct {
	JobID         ID // id of the job or batch
	CreatedAt     time.Time
	CorrelationID string
	Language      string // language of the request, one of Languages
	Scenario      Scenario
	Failures      []PlannedFailure // planned failures of a CUSTOM job
}

// Origin returns the origin of j.
func (j *Job) Origin() Origin {
	o := Origin{
		JobID: j.ID, CreatedAt: j.CreatedAt, CorrelationID: j.CorrelationID, Language: j.Language, Scenario: Scenario{WorkKind: j.WorkKind},
	}
	if d := j.Definition; d != nil {
		o.Scenario.DurationMS, o.Scenario.ExpectedOutcome = d.DurationMS, d.ExpectedOutcome
		if d.Behavior != nil {
			o.Failures = d.Behavior.Failures
		}
	}
	return o
}

// Document builds the outcome document of attempt `a`. `o` is the origin of the job.
func (l Links) Document(o Origin, a Attempt) Document {
	d := Document{
		Instance: l.At(AttemptPath(o.JobID, a.Number)), JobID: o.JobID, JobStatus: StatusOf(a.State, a.Failure),
		SubmittedAt: Time(o.CreatedAt), CorrelationID: o.CorrelationID, Attempt: a.Number,
	}
	if o.Scenario.WorkKind != "" {
		d.Scenario = &o.Scenario
	}
	if a.State.Final() {
		d.CompletedAt = TimeOf(a.FinishedAt)
	}
	if f := a.Failure; f != nil && a.State == Failed {
		retryable := f.Retryable
		d.Type, d.Status = l.ProblemType(string(f.Reason)), f.Code.Spec().Status
		d.Language = l.languageOf(o.Language)
		d.Title, d.Detail = f.Reason.Title(d.Language), f.In(d.Language)
		d.Code, d.ProcessingStage = f.Code, f.Stage
		d.Retryable = &retryable
		if retryable {
			d.RetryAfter = f.RetryAfter
		}
		if p := plannedFor(o.Failures, a.Number); p != nil && f.Reason == CustomFailed {
			p.Problem.applyTo(&d)
		}
	}
	return d
}
