package jobs

import (
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// getReport sends the report of the attempt in the query. Without this parameter, it sends the report of the latest finished attempt.
func (s *API) getReport(r *httpkit.Request) error {
	attempt, _ := query.Positive(r.Query("attempt")) // 0 if absent; the query was checked before
	first := max(attempt, 1)
	report, err := onceEnded(s, r,
		func() (*job.Report, error) { return s.Jobs.Report(r.Ctx, r.Caller.ClientID, r.PathID(), attempt) },
		func(j *job.Job) bool { return j.Attempt > first || j.Attempt == first && j.State.Final() })
	if err != nil {
		return err
	}
	v := s.reportOf(report)
	if v.Failure != nil {
		r.InLanguage(v.Failure.Language)
		adviseRetry(r, *v.Failure)
	}
	return r.JSON(fiber.StatusOK, v)
}

func (s *API) listAttempts(r *httpkit.Request) error {
	origin, attempts, err := s.Jobs.Attempts(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	if slices.ContainsFunc(attempts, func(a job.Attempt) bool { return a.State == job.Failed }) {
		r.InLanguage(origin.Language)
	}
	return r.JSON(fiber.StatusOK, query.ListOf(attempts, max(query.MaxLimit, len(attempts)), func(a job.Attempt) api.Attempt {
		return s.attemptOf(origin, a)
	}))
}

// If the outcome is a problem document, its member `instance` is the URL of this route.
func (s *API) getAttempt(r *httpkit.Request) error {
	n, ok := query.Positive(r.Params("n"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "Attempts are numbered from 1.")
	}
	origin, attempts, err := s.Jobs.Attempts(r.Ctx, r.Caller.ClientID, r.PathID())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(attempts, func(a job.Attempt) bool { return a.Number == n })
	if i < 0 {
		return job.Errorf(job.CodeJobNotFound, "The job has no attempt %d.", n)
	}
	document := s.Links.Document(origin, attempts[i])
	if document.IsProblem() {
		r.InLanguage(origin.Language)
	}
	adviseRetry(r, document)
	return r.SendAs(fiber.StatusOK, views.MediaOf(document), document)
}

func adviseRetry(r *httpkit.Request, d job.Document) {
	if d.RetryAfter > 0 {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(d.RetryAfter))
	}
}

func (s *API) reportOf(r *job.Report) *api.Report {
	v := &api.Report{
		JobID: r.JobID, Attempt: r.Number, Outcome: r.Outcome, StartedAt: job.TimeOf(r.StartedAt), FinishedAt: job.TimeOf(r.FinishedAt),
		DurationMS: int(r.Duration.Milliseconds()), Failure: s.failureOf(r.Origin, r.Attempt), Events: make([]api.Event, len(r.Events)),
	}
	for i, e := range r.Events {
		v.Events[i] = views.Event(e)
	}
	return v
}

func (s *API) failureOf(o job.Origin, a job.Attempt) *job.Document {
	if a.State != job.Failed {
		return nil
	}
	return new(s.Links.Document(o, a))
}

func (s *API) attemptOf(o job.Origin, a job.Attempt) api.Attempt {
	v := api.Attempt{
		Attempt: a.Number, State: a.State, Outcome: view.OrNull(a.Outcome), StartedAt: job.TimeOf(a.StartedAt),
		Failure: s.failureOf(o, a), Links: api.AttemptLinks{Self: s.Links.At(job.AttemptPath(o.JobID, a.Number))},
	}
	if !a.State.Final() {
		return v
	}
	v.FinishedAt = job.TimeOf(a.FinishedAt)
	v.Links.Report = new(s.Links.At(views.JobPath(o.JobID)) + "/report?attempt=" + strconv.Itoa(a.Number))
	if a.StartedAt != nil && a.FinishedAt != nil {
		v.DurationMS = new(int(a.FinishedAt.Sub(*a.StartedAt).Milliseconds()))
	}
	return v
}
