package handlers

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// sendReceipt answers 202 with v, as json would. No other answer is given so
// often, and reflection would take a tenth of the whole request.
func (r *call) sendReceipt(v view.Receipt) {
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

// jobMembers are what a job and its line in a list have in common.
type jobMembers struct {
	view.Job
	ScheduleID   *job.ID   `json:"schedule_id,omitempty"`   // of a run of a schedule
	ScheduledFor *job.Time `json:"scheduled_for,omitempty"` // the due time that it stands for
}

func jobMembersOf(j *job.Job) jobMembers {
	return jobMembers{view.JobOf(j), view.OrNull(j.ScheduleID), job.TimeOf(j.ScheduledFor)}
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
	Progress            *view.Progress  `json:"progress,omitempty"` // RUNNING only, if it is known
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
		jobMembers: jobMembersOf(j), AutoRetry: j.AutoRetry, Retry: policyViewOf(j.Definition.Policy()), Callback: view.OrNull(j.Callback),
		EstimatedCompletion: job.TimeOf(j.EstimatedCompletion(s.cfg.TimeScale)), ExpiresAt: s.expiryOf(j),
		Params: j.Params, Links: s.linksOf(j, now), Waiting: waitingViewOf(j),
	}
	if d := j.Definition; d != nil {
		v.Definition = &definitionView{d.WorkKind, d.DurationMS, d.ShouldFail, d.PayloadSize, d.ExpectedOutcome}
	}
	switch j.State {
	case job.Running:
		v.Progress = view.ProgressOf(j.Progress)
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

// policyView is what a request says about the attempts of its job, as it was sent.
type policyView struct {
	MaxAttempts int          `json:"max_attempts,omitempty"`
	Backoff     *backoffView `json:"backoff,omitempty"`
	Codes       []job.Code   `json:"codes,omitempty"`
}

type backoffView struct {
	Strategy job.Strategy `json:"strategy"`
	Base     string       `json:"base,omitempty"`
	Max      string       `json:"max,omitempty"`
	Delay    string       `json:"delay,omitempty"`
	Delays   []string     `json:"delays,omitempty"`
}

// policyViewOf is nil for a request that says nothing.
func policyViewOf(p *job.RetryPolicy) *policyView {
	if p == nil {
		return nil
	}
	return &policyView{p.MaxAttempts, backoffViewOf(p), p.Codes}
}

func backoffViewOf(p *job.RetryPolicy) *backoffView {
	if len(p.Delays) == 0 {
		return nil
	}
	v := &backoffView{Strategy: p.Strategy}
	switch p.Strategy {
	case job.Exponential:
		v.Base, v.Max = p.Delays[0].String(), p.Delays[len(p.Delays)-1].String()
	case job.Constant:
		v.Delay = p.Delays[0].String()
	case job.Listed:
		for _, d := range p.Delays {
			v.Delays = append(v.Delays, d.String())
		}
	}
	return v
}

// eventView is one event, in lists, reports and streams. An event of a batch or
// of a webhook belongs to no job: job_id, seq and attempt are null, and batch_id
// or webhook_id is there.
type eventView struct {
	EventID   job.ID          `json:"event_id"`
	Seq       *int            `json:"seq"`
	JobID     *job.ID         `json:"job_id"`
	BatchID   *job.ID         `json:"batch_id,omitempty"`
	WebhookID *job.ID         `json:"webhook_id,omitempty"`
	EventName string          `json:"event_name"`
	PrevState *job.State      `json:"prev_state"`
	NextState *job.State      `json:"next_state"`
	Attempt   *int            `json:"attempt"`
	Timestamp job.Time        `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// eventViewOf shows an event of a job.
func eventViewOf(e job.Event) eventView {
	v := eventView{
		EventID: e.ID, EventName: e.Name, PrevState: view.OrNull(e.Prev), NextState: view.OrNull(e.Next),
		Timestamp: job.Time(e.At), Data: e.Data,
	}
	if !e.JobID.IsZero() {
		v.JobID, v.Seq, v.Attempt = &e.JobID, &e.Seq, &e.Attempt
	}
	return v
}

// occurrenceViewOf shows any event of a client.
func occurrenceViewOf(o job.Occurrence) eventView {
	v := eventViewOf(o.Event)
	v.WebhookID = view.OrNull(o.Webhook)
	if o.Batch != nil {
		v.BatchID = &o.Batch.ID
	}
	return v
}

// progressFrame is the data of job-progress on a stream.
type progressFrame struct {
	JobID    job.ID         `json:"job_id"`
	Attempt  int            `json:"attempt"`
	Progress *view.Progress `json:"progress"`
}

func progressFrameOf(id job.ID, attempt int, p *job.Progress) any {
	return progressFrame{id, attempt, view.ProgressOf(p)}
}

// frameData shows an event on a stream. What ended an attempt or a batch comes
// with its outcome document (draft section 5.4).
func (s *Server) frameData(o *job.Occurrence) any {
	switch {
	case o.Ended != nil:
		return s.links.Document(o.Origin, *o.Ended)
	case o.Batch != nil:
		return s.links.BatchDocument(o.Batch)
	}
	return occurrenceViewOf(*o)
}
