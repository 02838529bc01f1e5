package handlers

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// getReport answers with the report of the latest finished attempt, or of the
// one that ?attempt names; see onceEnded.
func (s *Server) getReport(r *call) error {
	attempt, _ := query.Positive(r.Query("attempt")) // 0 if there is none; checked with the query
	first := max(attempt, 1)
	report, err := onceEnded(s, r,
		func() (*job.Report, error) { return s.deps.Reader.Report(r.ctx, r.caller.ClientID, r.jobID, attempt) },
		func(j *job.Job) bool { return j.Attempt > first || j.Attempt == first && j.State.Final() })
	if err != nil {
		return err
	}
	view := s.reportViewOf(report)
	if view.Failure != nil {
		r.inLanguage(view.Failure.Language)
		r.adviseRetry(*view.Failure)
	}
	return r.json(fiber.StatusOK, view)
}

// listAttempts answers with all attempts of a job: there are few.
func (s *Server) listAttempts(r *call) error {
	origin, attempts, err := s.deps.Reader.Attempts(r.ctx, r.caller.ClientID, r.jobID)
	if err != nil {
		return err
	}
	list := listView[attemptView]{
		Data: make([]attemptView, len(attempts)), Page: pageView{Limit: max(query.MaxLimit, len(attempts))},
	}
	for i, a := range attempts {
		list.Data[i] = s.attemptViewOf(origin, a)
		if list.Data[i].Failure != nil {
			r.inLanguage(origin.Language)
		}
	}
	return r.json(fiber.StatusOK, list)
}

// getAttempt answers with the outcome document of one attempt: what the
// instance of a failure points to.
func (s *Server) getAttempt(r *call) error {
	n, ok := query.Positive(r.Params("n"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "Attempts are numbered from 1.")
	}
	origin, attempts, err := s.deps.Reader.Attempts(r.ctx, r.caller.ClientID, r.jobID)
	if err != nil {
		return err
	}
	for _, a := range attempts {
		if a.Number == n {
			return s.sendAttempt(r, origin, a)
		}
	}
	return job.Errorf(job.CodeJobNotFound, "The job has no attempt %d.", n)
}

func (s *Server) sendAttempt(r *call, origin job.Origin, a job.Attempt) error {
	document := s.links.Document(origin, a)
	if document.IsProblem() {
		r.inLanguage(origin.Language)
	}
	r.adviseRetry(document)
	return r.send(fiber.StatusOK, mediaOf(document), document)
}

// adviseRetry repeats the retryAfter of a failure as a header (draft section 5.1).
func (r *call) adviseRetry(d job.Document) {
	if d.RetryAfter > 0 {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(d.RetryAfter))
	}
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

func (s *Server) reportViewOf(r *job.Report) *reportView {
	v := &reportView{
		JobID: r.JobID, Attempt: r.Number, Outcome: r.Outcome,
		StartedAt: job.TimeOf(r.StartedAt), FinishedAt: job.TimeOf(r.FinishedAt),
		DurationMS: r.Duration.Milliseconds(), Failure: s.failureOf(r.Origin, r.Attempt),
		Events: make([]eventView, len(r.Events)),
	}
	for i, e := range r.Events {
		v.Events[i] = eventViewOf(e)
	}
	return v
}

// failureOf gives the document of an attempt that failed, nil of others.
func (s *Server) failureOf(o job.Origin, a job.Attempt) *job.Document {
	if a.State != job.Failed {
		return nil
	}
	document := s.links.Document(o, a)
	return &document
}

// attemptView is an attempt in the list of a job's attempts.
type attemptView struct {
	Attempt    int              `json:"attempt"`
	State      job.State        `json:"state"`
	Outcome    *job.Outcome     `json:"outcome"` // null until it has ended
	StartedAt  *job.Time        `json:"started_at"`
	FinishedAt *job.Time        `json:"finished_at"`
	DurationMS *int64           `json:"duration_ms"`
	Failure    *job.Document    `json:"failure,omitempty"`
	Links      attemptLinksView `json:"links"`
}

type attemptLinksView struct {
	Self   string `json:"self"`
	Report string `json:"report,omitempty"`
}

func (s *Server) attemptViewOf(o job.Origin, a job.Attempt) attemptView {
	v := attemptView{
		Attempt: a.Number, State: a.State, Outcome: orNull(a.Outcome), StartedAt: job.TimeOf(a.StartedAt),
		Failure: s.failureOf(o, a), Links: attemptLinksView{Self: s.links.At(job.AttemptPath(o.JobID, a.Number))},
	}
	if !a.State.Final() {
		return v
	}
	v.FinishedAt = job.TimeOf(a.FinishedAt)
	v.Links.Report = s.links.At(jobPath(o.JobID)) + "/report?attempt=" + strconv.Itoa(a.Number)
	if a.StartedAt != nil && a.FinishedAt != nil {
		duration := a.FinishedAt.Sub(*a.StartedAt).Milliseconds()
		v.DurationMS = &duration
	}
	return v
}
