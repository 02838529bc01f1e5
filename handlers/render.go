package handlers

import (
	"encoding/hex"
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// The shapes of answers (section 8): snake_case, times in RFC 3339 with Z.

type clientView struct {
	ClientID job.ID `json:"client_id"`
}

type keyView struct {
	APIKey    *string  `json:"api_key"` // null when the key existed already
	KeyID     string   `json:"key_id"`
	CreatedAt job.Time `json:"created_at"`
	ExpiresAt job.Time `json:"expires_at"`
}

func keyViewOf(k job.IssuedKey) keyView {
	return keyView{orNull(k.Secret), k.ID, job.Time(k.CreatedAt), job.Time(k.ExpiresAt)}
}

type revokedView struct {
	Revoked bool `json:"revoked"`
}

type receiptView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	CreatedAt job.Time  `json:"created_at"`
}

type changeView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	UpdatedAt job.Time  `json:"updated_at"`
}

type retryView struct {
	changeView
	Attempt int `json:"attempt"`
}

type jobView struct {
	JobID         job.ID          `json:"job_id"`
	Type          job.Type        `json:"type"`
	WorkKind      job.Kind        `json:"work_kind"`
	State         job.State       `json:"state"`
	Outcome       *job.Outcome    `json:"outcome"` // null until final
	CreatedAt     job.Time        `json:"created_at"`
	ExecutionAt   *job.Time       `json:"execution_at"`
	UpdatedAt     job.Time        `json:"updated_at"`
	StartedAt     *job.Time       `json:"started_at"`
	FinishedAt    *job.Time       `json:"finished_at"`
	CanceledAt    *job.Time       `json:"canceled_at"`
	Attempt       int             `json:"attempt"`
	Attempts      int             `json:"attempts"`
	MaxAttempts   int             `json:"max_attempts"`
	CanRetry      bool            `json:"can_retry"`
	AutoRetry     bool            `json:"auto_retry"`
	Callback      *string         `json:"callback"`
	CorrelationID *string         `json:"correlation_id"`
	Definition    *definitionView `json:"definition"` // null when it is damaged
	Params        json.RawMessage `json:"params"`
	Failure       *job.Document   `json:"failure,omitempty"` // FAILED only
	Result        *resultView     `json:"result,omitempty"`  // SUCCEEDED only
	Links         linksView       `json:"links"`
}

type definitionView struct {
	WorkKind        job.Kind `json:"work_kind"`
	DurationMS      int64    `json:"duration_ms"`
	ShouldFail      bool     `json:"should_fail"`
	PayloadSize     int      `json:"payload_size"`
	ExpectedOutcome string   `json:"expected_outcome"`
}

type resultView struct {
	MediaType string       `json:"media_type"`
	SizeBytes int          `json:"size_bytes"`
	Checksum  checksumView `json:"checksum"`
	ExpiresAt job.Time     `json:"expires_at"`
}

type checksumView struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"value"` // lower-case hex
}

// linksView holds what can be done with the job now.
type linksView struct {
	Self   string `json:"self"`
	Cancel string `json:"cancel,omitempty"`
	Retry  string `json:"retry,omitempty"`
	Report string `json:"report,omitempty"`
}

func jobPath(id job.ID) string { return "/v1/jobs/" + id.String() }

func (s *Server) jobViewOf(j *job.Job) *jobView {
	v := &jobView{
		JobID: j.ID, Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: orNull(j.Outcome),
		CreatedAt: job.Time(j.CreatedAt), ExecutionAt: job.TimeOf(j.ExecutionAt), UpdatedAt: job.Time(j.UpdatedAt),
		StartedAt: job.TimeOf(j.StartedAt), FinishedAt: job.TimeOf(j.FinishedAt),
		Attempt: j.Attempt, Attempts: j.Attempt, MaxAttempts: j.MaxAttempts,
		CanRetry: j.CanRetry(), AutoRetry: j.AutoRetry,
		Callback: orNull(j.Callback), CorrelationID: orNull(j.CorrelationID), Params: j.Params,
		Links: linksOf(j),
	}
	if d := j.Definition; d != nil {
		v.Definition = &definitionView{d.WorkKind, d.DurationMS, d.ShouldFail, d.PayloadSize, d.ExpectedOutcome}
	}
	switch j.State {
	case job.Canceled:
		v.CanceledAt = v.FinishedAt
	case job.Failed:
		document := s.links.Document(j, j.CurrentAttempt())
		v.Failure = &document
	case job.Succeeded:
		v.Result = resultViewOf(j.Result)
	}
	return v
}

func resultViewOf(r *job.ResultInfo) *resultView {
	if r == nil {
		return nil
	}
	return &resultView{r.MediaType, r.Size, checksumView{"sha256", hex.EncodeToString(r.SHA256[:])}, job.Time(r.ExpiresAt)}
}

func linksOf(j *job.Job) linksView {
	self := jobPath(j.ID)
	links := linksView{Self: self}
	if !j.State.Final() {
		links.Cancel = self + "/cancel"
	}
	if j.CanRetry() {
		links.Retry = self + "/retry"
	}
	if j.State.Final() || j.Attempt > 1 {
		links.Report = self + "/report"
	}
	return links
}

type reportView struct {
	JobID      job.ID        `json:"job_id"`
	Attempt    int           `json:"attempt"`
	Outcome    job.Outcome   `json:"outcome"`
	StartedAt  *job.Time     `json:"started_at"` // null if it never started
	FinishedAt *job.Time     `json:"finished_at"`
	DurationMS int64         `json:"duration_ms"`
	Failure    *job.Document `json:"failure,omitempty"`
	Events     []eventView   `json:"events"`
}

type eventView struct {
	EventID   job.ID          `json:"event_id"`
	Seq       int             `json:"seq"`
	JobID     job.ID          `json:"job_id"`
	EventName string          `json:"event_name"`
	PrevState *job.State      `json:"prev_state"`
	NextState *job.State      `json:"next_state"`
	Attempt   int             `json:"attempt"`
	Timestamp job.Time        `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

func reportViewOf(r *job.Report, document *job.Document) *reportView {
	v := &reportView{
		JobID: r.JobID, Attempt: r.Number, Outcome: r.Outcome,
		StartedAt: job.TimeOf(r.StartedAt), FinishedAt: job.TimeOf(r.FinishedAt),
		DurationMS: r.Duration.Milliseconds(), Events: make([]eventView, len(r.Events)),
	}
	if r.State == job.Failed {
		v.Failure = document
	}
	for i, e := range r.Events {
		v.Events[i] = eventView{
			e.ID, e.Seq, e.JobID, e.Name, orNull(e.Prev), orNull(e.Next), e.Attempt, job.Time(e.At), e.Data,
		}
	}
	return v
}

// orNull makes the absent value null.
func orNull[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}
