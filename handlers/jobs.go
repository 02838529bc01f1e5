package handlers

import (
	"cmp"
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

func (s *Server) deleteJob(r *call) error {
	id := r.pathJob()
	if err := r.emptyBody(); err != nil {
		return err
	}
	if err := s.deps.Jobs.Delete(r.ctx, r.caller.ClientID, id); err != nil {
		return err
	}
	r.Status(fiber.StatusNoContent)
	return nil
}

// getJob answers with the job, or with 304 while nothing happened to it. A
// client that is willing to wait gets it at the next change of its state: at
// once if it is final, or if the client has an earlier view of it.
func (s *Server) getJob(r *call) error {
	id, w := r.pathJob(), r.wishes()
	j, err := s.deps.Reader.Job(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	known := r.list(fiber.HeaderIfNoneMatch)
	if j.State.Final() || known != "" && !matchesETag(known, s.jobTag(r, j)) {
		w.applyWait()
	} else {
		first := j
		later, err := s.await(r, w, id, func(now *job.Job) bool {
			return now.State != first.State || now.Attempt != first.Attempt
		})
		if err != nil {
			return err
		}
		j = cmp.Or(later, first)
	}
	w.tell(r)
	if matchesETag(known, s.jobTag(r, j)) {
		s.jobHeaders(r, j)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendJob(r, j)
}

// sendJob answers with the job, in the view that the client prefers.
func (s *Server) sendJob(r *call, j *job.Job) error {
	s.jobHeaders(r, j)
	if j.State == job.Failed {
		r.inLanguage(j.Language)
	}
	if r.wantsDocument() {
		document := s.links.Document(j.Origin(), j.CurrentAttempt())
		return r.send(fiber.StatusOK, mediaOf(document), document)
	}
	return r.json(fiber.StatusOK, s.jobViewOf(j, s.deps.Clock()))
}

// jobHeaders sets what the header says of a job. Retry-After is the advised
// wait before the next look while the job is not final, and before the next
// attempt when it has failed (draft section 5.1).
func (s *Server) jobHeaders(r *call, j *job.Job) {
	r.Set(fiber.HeaderETag, s.jobTag(r, j))
	r.Vary(fiber.HeaderAccept)
	switch {
	case !j.State.Final():
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(j)))
	case j.State == job.Failed && j.Failure != nil && j.Failure.Retryable && j.Failure.RetryAfter > 0:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(j.Failure.RetryAfter))
	}
	if hasResult(j, s.deps.Clock()) {
		r.relate(resultPath(j.ID), s.relation("job-result"))
	}
}

// relation gives the URI of a link relation of this API.
func (s *Server) relation(name string) string { return s.cfg.PublicURL + "/rels/" + name }

// jobTag is the entity tag of a job in the view that the client prefers. It
// changes with each event, and with what changes without one.
func (s *Server) jobTag(r *call, j *job.Job) string {
	tag := strconv.Itoa(j.EventSeq)
	switch {
	case r.wantsDocument():
		tag += "-document"
	case j.State == job.Running && j.Progress != nil:
		tag += "-" + strconv.FormatInt(j.Progress.UpdatedAt.UnixMicro(), 36)
	case j.Waiting != "":
		tag += "-" + string(j.Waiting)
	case j.State == job.Succeeded && !hasResult(j, s.deps.Clock()):
		tag += "-expired"
	}
	return `W/"` + tag + `"`
}

// maxPoll is the longest advised wait before the next look, in seconds.
const maxPoll = 60

// pollAfter is the advised wait before the next look, in whole seconds: 1, or
// for a job that waits for its time, until then but at most maxPoll.
func (s *Server) pollAfter(j *job.Job) int {
	if !j.State.Waiting() {
		return 1
	}
	return min(maxPoll, max(1, seconds(j.RunAt.Sub(s.deps.Clock()))))
}

// getReport answers with the report of the latest finished attempt, or of the
// one that ?attempt names.
func (s *Server) getReport(r *call) error {
	attempt, _ := parsePositive(r.Query("attempt")) // 0 if there is none; checked with the query
	report, err := s.deps.Reader.Report(r.ctx, r.caller.ClientID, r.pathJob(), attempt)
	if err != nil {
		return err
	}
	if report.State == job.Failed {
		r.inLanguage(report.Language)
	}
	return r.json(fiber.StatusOK, s.reportViewOf(report))
}

// listAttempts answers with all attempts of a job: there are few.
func (s *Server) listAttempts(r *call) error {
	origin, attempts, err := s.deps.Reader.Attempts(r.ctx, r.caller.ClientID, r.pathJob())
	if err != nil {
		return err
	}
	list := listView[attemptView]{
		Data: make([]attemptView, len(attempts)), Page: pageView{Limit: max(maxLimit, len(attempts))},
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
	id := r.pathJob()
	n, ok := parsePositive(r.Params("n"))
	if !ok {
		return job.Errorf(job.CodeRequestNotFound, "Attempts are numbered from 1.")
	}
	origin, attempts, err := s.deps.Reader.Attempts(r.ctx, r.caller.ClientID, id)
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
	if document.RetryAfter > 0 {
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(document.RetryAfter)) // draft section 5.1
	}
	return r.send(fiber.StatusOK, mediaOf(document), document)
}
