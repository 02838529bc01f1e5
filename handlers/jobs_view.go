package handlers

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

type receiptView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	CreatedAt job.Time  `json:"created_at"`

	Warnings []job.Violation `json:"warnings,omitempty"`
}

// sendReceipt answers 202 with v, as json would. No other answer is given so
// often, and reflection would take a tenth of the whole request.
func (r *call) sendReceipt(v receiptView) {
	created, _ := v.CreatedAt.MarshalText() // cannot fail
	body := append(make([]byte, 0, 160), `{"job_id":"`...)
	body = append(append(body, v.JobID.String()...), `","state":"`...)
	body = append(append(body, v.State...), `","created_at":"`...)
	body = append(append(body, created...), '"')
	if len(v.Warnings) > 0 {
		body = append(append(body, `,"warnings":`...), listOf(v.Warnings)...)
	}
	body = append(body, "}\n"...)
	r.Response().SetBody(body)
	r.Status(fiber.StatusAccepted)
	r.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
}

// listOf writes warnings as json would.
func listOf(warnings []job.Violation) []byte {
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(warnings) // cannot fail: they are strings
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

type changeView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	UpdatedAt job.Time  `json:"updated_at"`
	Changed   bool      `json:"changed"` // false: the job was left as it is
}

func changeViewOf(c job.Change) changeView {
	return changeView{c.JobID, c.State, job.Time(c.UpdatedAt), c.Changed}
}

type retryView struct {
	changeView
	Attempt int `json:"attempt"`
}

func retryViewOf(c job.Change) retryView { return retryView{changeViewOf(c), c.Attempt} }

// jobMembers are what a job and its line in a list have in common.
type jobMembers struct {
	JobID         job.ID       `json:"job_id"`
	Type          job.Type     `json:"type"`
	WorkKind      job.Kind     `json:"work_kind"`
	State         job.State    `json:"state"`
	Outcome       *job.Outcome `json:"outcome"` // null until final
	CreatedAt     job.Time     `json:"created_at"`
	ExecutionAt   *job.Time    `json:"execution_at"`
	UpdatedAt     job.Time     `json:"updated_at"`
	StartedAt     *job.Time    `json:"started_at"`
	FinishedAt    *job.Time    `json:"finished_at"`
	CanceledAt    *job.Time    `json:"canceled_at"`
	Attempt       int          `json:"attempt"`
	Attempts      int          `json:"attempts"`
	MaxAttempts   int          `json:"max_attempts"`
	CanRetry      bool         `json:"can_retry"`
	BatchID       *job.ID      `json:"batch_id"`
	CorrelationID *string      `json:"correlation_id"`
	ScheduleID    *job.ID      `json:"schedule_id,omitempty"`   // of a run of a schedule
	ScheduledFor  *job.Time    `json:"scheduled_for,omitempty"` // the due time that it stands for
}

func jobMembersOf(j *job.Job) jobMembers {
	m := jobMembers{
		JobID: j.ID, Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: orNull(j.Outcome),
		CreatedAt: job.Time(j.CreatedAt), ExecutionAt: job.TimeOf(j.ExecutionAt), UpdatedAt: job.Time(j.UpdatedAt),
		StartedAt: job.TimeOf(j.StartedAt), FinishedAt: job.TimeOf(j.FinishedAt),
		Attempt: j.Attempt, Attempts: j.Attempt, MaxAttempts: j.MaxAttempts, CanRetry: j.CanRetry(),
		BatchID: idOrNull(j.BatchID), CorrelationID: orNull(j.CorrelationID),
		ScheduleID: idOrNull(j.ScheduleID), ScheduledFor: job.TimeOf(j.ScheduledFor),
	}
	if j.State == job.Canceled {
		m.CanceledAt = m.FinishedAt
	}
	return m
}

// summaryView is a job in a list.
type summaryView struct {
	ItemID *string `json:"item_id,omitempty"` // in the list of a batch only
	jobMembers
	Links selfView `json:"links"`
}

type selfView struct {
	Self string `json:"self"`
}

func (s *Server) summaryViewOf(j *job.Job) summaryView {
	return summaryView{jobMembers: jobMembersOf(j), Links: selfView{s.links.At(jobPath(j.ID))}}
}

// jobView is a job with everything that is known of it.
type jobView struct {
	jobMembers
	AutoRetry           bool            `json:"auto_retry"`
	Retry               *policyView     `json:"retry,omitempty"` // what its request said
	Callback            *string         `json:"callback"`
	EstimatedCompletion *job.Time       `json:"estimated_completion"` // null unless it can be estimated
	ExpiresAt           *job.Time       `json:"expires_at"`           // null until final
	Definition          *definitionView `json:"definition"`           // null when it is damaged
	Params              json.RawMessage `json:"params"`
	Waiting             *waitingView    `json:"waiting,omitempty"`  // while it waits
	Progress            *progressView   `json:"progress,omitempty"` // RUNNING only, if it is known
	Failure             *job.Document   `json:"failure,omitempty"`  // FAILED only
	Result              *resultView     `json:"result,omitempty"`   // SUCCEEDED only
	Links               linksView       `json:"links"`
	Warnings            []job.Violation `json:"warnings,omitempty"` // in the answer to its submission only
}

type definitionView struct {
	WorkKind        job.Kind `json:"work_kind"`
	DurationMS      int64    `json:"duration_ms"`
	ShouldFail      bool     `json:"should_fail"`
	PayloadSize     int      `json:"payload_size"`
	ExpectedOutcome string   `json:"expected_outcome"`
}

type waitingView struct {
	Reason job.WaitingReason `json:"reason"`
	Until  *job.Time         `json:"until"` // null unless it waits for a time
}

func waitingViewOf(j *job.Job) *waitingView {
	if j.Waiting == "" || !j.State.Waiting() {
		return nil
	}
	v := &waitingView{Reason: j.Waiting}
	if j.Waiting == job.WaitingScheduled || j.Waiting == job.WaitingBackoff {
		v.Until = job.TimeOf(&j.RunAt)
	}
	return v
}

// linksView holds what can be done with the job now.
type linksView struct {
	Self       string `json:"self"`
	Events     string `json:"events"`
	Attempts   string `json:"attempts"`
	Deliveries string `json:"deliveries"`
	Cancel     string `json:"cancel,omitempty"`
	Retry      string `json:"retry,omitempty"`
	Report     string `json:"report,omitempty"`
	Result     string `json:"result,omitempty"`
	Batch      string `json:"batch,omitempty"`
	Schedule   string `json:"schedule,omitempty"`
}

func jobPath(id job.ID) string { return "/v1/jobs/" + id.String() }

func resultPath(id job.ID) string { return jobPath(id) + "/result" }

// jobViewOf shows j as it is now.
func (s *Server) jobViewOf(j *job.Job, now time.Time) *jobView {
	v := &jobView{
		jobMembers: jobMembersOf(j), AutoRetry: j.AutoRetry, Retry: policyViewOf(j.Definition.Policy()), Callback: orNull(j.Callback),
		EstimatedCompletion: job.TimeOf(j.EstimatedCompletion(s.cfg.TimeScale)), ExpiresAt: s.expiryOf(j),
		Params: j.Params, Links: s.linksOf(j, now), Waiting: waitingViewOf(j),
	}
	if d := j.Definition; d != nil {
		v.Definition = &definitionView{d.WorkKind, d.DurationMS, d.ShouldFail, d.PayloadSize, d.ExpectedOutcome}
	}
	switch j.State {
	case job.Running:
		v.Progress = progressViewOf(j.Progress)
	case job.Failed:
		document := s.links.Document(j.Origin(), j.CurrentAttempt())
		v.Failure = &document
	case job.Succeeded:
		v.Result = s.resultViewOf(j, now)
	}
	return v
}

// expiryOf gives the time after which a final job is deleted.
func (s *Server) expiryOf(j *job.Job) *job.Time {
	if !j.State.Final() || j.FinishedAt == nil || s.cfg.RetentionJobs <= 0 {
		return nil
	}
	end := j.FinishedAt.Add(s.cfg.RetentionJobs)
	return job.TimeOf(&end)
}

func (s *Server) linksOf(j *job.Job, now time.Time) linksView {
	self := s.links.At(jobPath(j.ID))
	links := linksView{Self: self, Events: self + "/events", Attempts: self + "/attempts", Deliveries: self + "/deliveries"}
	if !j.State.Final() {
		links.Cancel = self + "/cancel"
	}
	if j.CanRetry() {
		links.Retry = self + "/retry"
	}
	if j.State.Final() || j.Attempt > 1 {
		links.Report = self + "/report"
	}
	if hasResult(j, now) {
		links.Result = self + "/result"
	}
	if !j.BatchID.IsZero() {
		links.Batch = s.links.At(job.BatchPath(j.BatchID))
	}
	if !j.ScheduleID.IsZero() {
		links.Schedule = s.links.At(job.SchedulePath(j.ScheduleID))
	}
	return links
}
