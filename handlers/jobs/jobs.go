// Package jobs handles requests that submit jobs, read or await them, and read results of attempts.
package jobs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/job"
)

// API handles requests about jobs.
type API struct {
	*httpkit.Kit
	Views     views.Views
	Jobs      *jobs.Service
	Admission *jobs.Backlog // nil: no limit
}

// Routes returns the routes of jobs.
func (s *API) Routes() []httpkit.Route {
	const get, post, client = httpkit.Get, httpkit.Post, httpkit.ClientKey
	cancel, retry := httpkit.ByID(s.Jobs.Cancel, views.Changed), httpkit.ByID(s.Jobs.Retry, views.Retried)
	return []httpkit.Route{
		httpkit.Row(post, "/v1/jobs", client, "submit", fiber.StatusAccepted, s.submit),
		httpkit.Row(get, "/v1/jobs", client, "list", fiber.StatusOK, s.listJobs, listQuery...),
		httpkit.Row(get, "/v1/jobs/:id", client, "get", fiber.StatusOK, s.getJob),
		httpkit.Row(httpkit.Delete, "/v1/jobs/:id", client, "delete", fiber.StatusNoContent, httpkit.Bodyless(httpkit.RemoveByID(s.Jobs.Delete))),
		httpkit.Row(post, "/v1/jobs/:id/cancel", client, "cancel", fiber.StatusOK, httpkit.Once(httpkit.Bodyless(cancel))),
		httpkit.Row(post, "/v1/jobs/:id/retry", client, "retry", fiber.StatusOK, httpkit.Once(httpkit.Bodyless(retry))),
		httpkit.Row(get, "/v1/jobs/:id/report", client, "report", fiber.StatusOK, s.getReport, reportQuery),
		httpkit.Row(get, "/v1/jobs/:id/attempts", client, "attempts", fiber.StatusOK, s.listAttempts),
		httpkit.Row(get, "/v1/jobs/:id/attempts/:n", client, "attempt", fiber.StatusOK, s.getAttempt),
		httpkit.Row(get, "/v1/jobs/:id/result", client, "result", fiber.StatusOK, s.getResult).As(),
	}
}

func (s *API) submit(r *httpkit.Request) error {
	var req job.Request
	var receipt job.Receipt
	err := httpkit.Admitted(r, s.Admission, func(body []byte, key string) (err error) {
		if req, err = decode.Job(body, key, s.DecodeLimits()); err != nil {
			return err
		}
		req.ClientID = r.Caller.ClientID
		err = r.LimitItems(max(httpkit.Pieces(body), s.Jobs.Deliveries(&req)),
			" This submission counts as %d requests, the higher of two numbers: the 16 KiB "+
				"blocks of its body, and the deliveries for events that its job may emit.")
		if err != nil {
			return err
		}
		from, err := r.Provenance()
		if err != nil {
			return err
		}
		from.Complete(&req)
		req.RequestID, req.ReceivedAt = r.ID, s.ReceivedAt()
		receipt, err = s.Jobs.Submit(r.Ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	accepted := &job.Job{ID: receipt.JobID, State: receipt.State}
	if req.ExecutionAt != nil {
		accepted.RunAt = *req.ExecutionAt
	}
	r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(accepted)))
	return s.accepted(r, receipt, req.Warnings)
}

// accepted sends 202 with the address to poll. If the client waits and the job ends in time, it sends 200 with the job. After an error
// during the wait, the response is still 202, because the job was accepted.
func (s *API) accepted(r *httpkit.Request, receipt job.Receipt, warnings []job.Violation) error {
	r.About(httpkit.JobID, receipt.JobID)
	r.AcceptedAt(views.JobPath(receipt.JobID), receipt.Replayed)
	prefs := r.Preferences()
	j, err := s.await(r, prefs, receipt.JobID, func(j *job.Job) bool { return j.State.Final() })
	if err == nil && j != nil && j.State.Final() {
		r.Response().Header.Del(fiber.HeaderRetryAfter) // a final job needs no polling
		r.Honored(prefs)
		return s.sendJob(r, j, warnings)
	}
	if err != nil { // for example, the job of a replayed submission was deleted
		prefs.Forget()
	}
	if err == nil && j != nil {
		receipt.State = j.State
	}
	prefs.ApplyAsync()
	r.Honored(prefs)
	return r.JSON(fiber.StatusAccepted, api.JobReceipt{
		JobID: receipt.JobID, State: receipt.State, CreatedAt: job.Time(receipt.CreatedAt), Warnings: warnings,
	})
}

// getJob sends the job, or 304 if it has not changed. If the client waits, getJob responds after the job's next change of state. If the job
// is final, or If-None-Match has an outdated tag, getJob responds at once.
func (s *API) getJob(r *httpkit.Request) error {
	id, prefs := r.PathID(), r.Preferences()
	j, err := s.Jobs.Job(r.Ctx, r.Caller.ClientID, id)
	if err != nil {
		return err
	}
	known := r.List(fiber.HeaderIfNoneMatch)
	if j.State.Final() || known != "" && !header.MatchesETag(known, s.jobTag(r, j)) {
		prefs.ApplyWait()
	} else {
		first := j
		later, err := s.await(r, prefs, id, func(now *job.Job) bool {
			return now.State != first.State || now.Attempt != first.Attempt
		})
		if err != nil {
			return err
		}
		j = cmp.Or(later, first)
	}
	r.Honored(prefs)
	if r.Unchanged(s.jobTag(r, j)) {
		s.jobHeaders(r, j)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendJob(r, j, nil)
}

func (s *API) sendJob(r *httpkit.Request, j *job.Job, warnings []job.Violation) error {
	s.jobHeaders(r, j)
	attempt := j.CurrentAttempt()
	if r.Hides && j.State.Final() {
		attempt = job.Attempt{Number: j.Attempt, State: job.Running}
	}
	if attempt.State == job.Failed {
		r.InLanguage(j.Language)
	}
	if r.WantsDocument() {
		document := s.Links.Document(j.Origin(), attempt)
		return r.SendAs(fiber.StatusOK, views.MediaOf(document), document)
	}
	v := s.Views.Job(j, s.Clock())
	v.Warnings = warnings
	return r.JSON(fiber.StatusOK, v)
}

// Retry-After says when to poll an unfinished job or retry a failed one (async-problem-details, section 5.1).
func (s *API) jobHeaders(r *httpkit.Request, j *job.Job) {
	r.Set(fiber.HeaderETag, s.jobTag(r, j))
	r.Vary(fiber.HeaderAccept)
	switch {
	case !j.State.Final() || r.Hides:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(j)))
	case j.State == job.Failed && j.Failure != nil && j.Failure.Retryable && j.Failure.RetryAfter > 0:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(j.Failure.RetryAfter))
	}
	if views.HasResult(j, s.Clock()) && !r.Hides {
		r.Relate(views.ResultPath(j.ID), s.Relation("job-result"))
	}
}

// jobTag returns the ETag of the representation that the client prefers: JSON or the outcome document. The tag changes with each event, the
// progress, the waiting reason and the expiry of the result.
func (s *API) jobTag(r *httpkit.Request, j *job.Job) string {
	tag := strconv.Itoa(j.EventSeq)
	switch {
	case r.WantsDocument():
		tag += "-document"
	case j.State == job.Running && j.Progress != nil:
		tag += "-" + strconv.FormatInt(time.Time(j.Progress.UpdatedAt).UnixMicro(), 36)
	case j.Waiting != "":
		tag += "-" + string(j.Waiting)
	case j.State == job.Succeeded && !views.HasResult(j, s.Clock()):
		tag += "-expired"
	}
	return `W/"` + tag + `"`
}

// maxPoll is the longest polling interval in seconds.
const maxPoll = 60

// pausedPoll is the polling interval of a paused job in seconds.
const pausedPoll = 5

// pollAfter returns the polling interval for Retry-After, in seconds. A scheduled job is polled at its start time, but after maxPoll at
// the latest.
func (s *API) pollAfter(j *job.Job) int {
	switch {
	case j.Waiting == job.WaitingPaused:
		return pausedPoll
	case !j.State.Waiting() || j.Throttled() || j.Paused():
		return 1
	}
	return min(maxPoll, max(1, problem.Seconds(s.Real(j.RunAt).Sub(s.Real(s.Clock())))))
}

func (s *API) listJobs(r *httpkit.Request) error {
	q := job.Query{
		State: job.State(r.Query("state")), Type: job.Type(r.Query("type")), WorkKind: job.Kind(r.Query("work_kind")),
		CorrelationID: r.Query("correlation_id"),
		BatchID:       query.IDOf(r.Query("batch_id")), ScheduleID: query.IDOf(r.Query("schedule_id")),
		CreatedAfter: query.TimeOf(r.Query("created_after")), CreatedBefore: query.TimeOf(r.Query("created_before")),
	}
	if q.State != "" || q.Type != "" || q.WorkKind != "" || q.CorrelationID != "" {
		const more = " A list filtered by state, type, kind or correlation id counts as %d requests."
		if err := r.LimitItems(httpkit.FilteredCost, more); err != nil {
			return err
		}
	}
	return httpkit.Paged(r, "jobs?"+r.Filters(), s.Views.Summary, func(after job.ID, limit int) ([]*job.Job, job.ID, error) {
		q.After, q.Limit = after, limit
		page, err := s.Jobs.Jobs(r.Ctx, r.Caller.ClientID, q)
		return page.Jobs, page.Next, err
	})
}

var listQuery = slices.Concat(query.Page, []query.Parameter{
	query.Choice("state", job.States), query.Choice("type", job.Types), query.Choice("work_kind", job.AllKinds()),
	query.ID("batch_id", "a batch"), query.ID("schedule_id", "a schedule"), {
		Name: "correlation_id", Valid: decode.ValidCorrelation, Want: strings.TrimSuffix(decode.CorrelationForm, "."),
	},
}, query.Created)

var reportQuery = query.Number("attempt", "the number of an attempt, a whole number from 1")
