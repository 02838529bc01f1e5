package handlers

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/job"
)

func (s *Server) cancelJob(r *call) error {
	id := r.pathJob()
	if err := r.emptyBody(); err != nil {
		return err
	}
	change, err := s.deps.Jobs.Cancel(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, changeView{change.JobID, change.State, job.Time(change.UpdatedAt)})
}

func (s *Server) retryJob(r *call) error {
	id := r.pathJob()
	if err := r.emptyBody(); err != nil {
		return err
	}
	change, err := s.deps.Jobs.Retry(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, retryView{
		changeView{change.JobID, change.State, job.Time(change.UpdatedAt)}, change.Attempt,
	})
}

// getJob answers with the job, 304 while nothing happened to it, and
// Retry-After while it is not final.
func (s *Server) getJob(r *call) error {
	j, err := s.deps.Jobs.Job(r.ctx, r.caller.ClientID, r.pathJob())
	if err != nil {
		return err
	}
	tag := `W/"` + strconv.Itoa(j.EventSeq) + `"`
	r.Set(fiber.HeaderETag, tag)
	if !j.State.Final() {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(j)))
	}
	if matchesETag(r.list(fiber.HeaderIfNoneMatch), tag) {
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return r.json(fiber.StatusOK, s.jobViewOf(j))
}

// pollAfter is the advised wait before the next look, in whole seconds: 1, or
// for a job that waits for its time, until then but at most 60.
func (s *Server) pollAfter(j *job.Job) int {
	if !j.State.Waiting() {
		return 1
	}
	return min(60, max(1, seconds(j.RunAt.Sub(s.deps.Clock()))))
}

// getReport answers with the report of the latest finished attempt, or of the
// one that ?attempt names.
func (s *Server) getReport(r *call) error {
	id, attempt := r.pathJob(), 0
	if len(r.Request().URI().QueryString()) > 0 {
		n, ok := parseAttempt(r.Query("attempt"))
		if !ok {
			return job.Errorf(job.CodeMalformed, "The query parameter attempt is the number of an attempt, from 1.")
		}
		attempt = n
	}
	report, document, err := s.outcome(r, id, attempt)
	if err != nil {
		return err
	}
	return r.json(fiber.StatusOK, reportViewOf(report, document))
}

// getAttempt answers with the outcome document of one finished attempt: what
// the instance of a failure points to.
func (s *Server) getAttempt(r *call) error {
	id := r.pathJob()
	n, ok := parseAttempt(r.Params("n"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "Attempts are numbered from 1.")
	}
	_, document, err := s.outcome(r, id, n)
	if err != nil {
		return err
	}
	media := fiber.MIMEApplicationJSON
	if document.Type != "" {
		media = mimeProblem
	}
	if document.RetryAfter > 0 {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(document.RetryAfter)) // draft section 5.1
	}
	return r.send(fiber.StatusOK, media, document)
}

// outcome reads a finished attempt. The document also needs of the job what
// never changes: when it was submitted, and its correlation id.
func (s *Server) outcome(r *call, id job.ID, attempt int) (*job.Report, *job.Document, error) {
	report, err := s.deps.Jobs.Report(r.ctx, r.caller.ClientID, id, attempt)
	if err != nil {
		return nil, nil, err
	}
	j, err := s.deps.Jobs.Job(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return nil, nil, err
	}
	document := s.links.Document(j, report.Attempt)
	return report, &document, nil
}
