package handlers

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// Jobs are the use cases that change a client's jobs. Here as in the other
// interfaces, an id that is not the client's own is answered as one that never
// existed.
type Jobs interface {
	Submit(ctx context.Context, r job.Request) (job.Receipt, error)
	// Deliveries returns how many deliveries the events make that a job may emit.
	Deliveries(r *job.Request) int
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
	Retry(ctx context.Context, client, id job.ID) (job.Change, error)
	Delete(ctx context.Context, client, id job.ID) error // nil for one that is gone already
	// CancelClient stops some of a client's unfinished jobs, and tells whether there may be more.
	CancelClient(ctx context.Context, client job.ID) (canceled int, more bool, err error)
}

// Reader reads a client's jobs.
type Reader interface {
	Job(ctx context.Context, client, id job.ID) (*job.Job, error)
	// Await reads a job again with each change until done says so. When ctx
	// ends first, it gives the job as it was read last.
	Await(ctx context.Context, client, id job.ID, done func(*job.Job) bool) (*job.Job, error)
	Report(ctx context.Context, client, id job.ID, attempt int) (*job.Report, error)    // attempt 0: the latest
	Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) // from the first to the current one
	Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
	List(ctx context.Context, client job.ID, q job.Query) (job.Page, error)
}

func (s *Server) submit(r *call) error {
	var req job.Request
	var receipt job.Receipt
	err := admitted(r, s.deps.Admission, func(body []byte, key string) (err error) {
		if req, err = decode.Job(body, key, s.cfg.decodeLimits()); err != nil {
			return err
		}
		req.ClientID = r.caller.ClientID
		err = s.limitItems(r, max(pieces(body), s.deps.Jobs.Deliveries(&req)), " A submission counts as as many as 16 KiB were begun in its "+
			"body, or as the events that its job may emit make deliveries if those are more, this one as %d.")
		if err != nil {
			return err
		}
		from, err := s.provenance(r)
		if err != nil {
			return err
		}
		from.complete(&req)
		req.RequestID, req.ReceivedAt = r.idText, s.receivedAt()
		receipt, err = s.deps.Jobs.Submit(r.ctx, req)
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
	r.warnings = req.Warnings
	return s.accepted(r, receipt)
}

// decodeLimits are what the bodies of submissions are read by.
func (c *Config) decodeLimits() decode.Limits {
	return decode.Limits{MaxPayload: c.MaxPayloadBytes, TestBed: c.TestBed}
}

// Admission bounds how many submissions wait for storage at once.
type Admission interface {
	// Full refuses with an error while no request would be admitted.
	Full() error
	// Enter admits a submission, and Leave must follow; an error refuses it.
	Enter() error
	Leave(accepted bool)
}

// admitted reads a submission and has it accepted. It is refused first if too many
// wait; the client is authenticated by then, so that others do not learn the load.
// While its body arrives it does not count as one that waits.
func admitted(r *call, a Admission, accept func(body []byte, key string) error) (err error) {
	if a != nil {
		if err := a.Full(); err != nil {
			r.refused = true
			return err
		}
	}
	body, key, err := r.keyedBody()
	if err != nil {
		return err
	}
	defer r.dropBody() // the client may wait for the job
	if a != nil {
		if err := a.Enter(); err != nil {
			r.refused = true
			return err
		}
		defer func() { a.Leave(err == nil) }()
	}
	return accept(body, key)
}

// pieceBytes of a body count as one request for the rate limit: storage and
// its log take large submissions as long as many small ones.
const pieceBytes = 16 << 10

// pieces is the number of them that a body has begun.
func pieces(body []byte) int { return (len(body) + pieceBytes - 1) / pieceBytes }

// receivedAt is the time of a request, as precise as storage keeps it.
func (s *Server) receivedAt() time.Time { return s.deps.Clock().UTC().Truncate(time.Microsecond) }

// accepted answers 202 with the address to poll. A client that is willing to
// wait gets 200 with the job if that ends in time. From here on nothing is an
// error: the job is accepted.
func (s *Server) accepted(r *call, receipt job.Receipt) error {
	r.jobID = receipt.JobID
	r.acceptedAt(jobPath(receipt.JobID), receipt.Replayed)
	prefs := r.preferences()
	j, err := s.await(r, prefs, receipt.JobID, func(j *job.Job) bool { return j.State.Final() })
	if err == nil && j != nil && j.State.Final() {
		r.Response().Header.Del(fiber.HeaderRetryAfter) // it was for polling
		prefs.report(r)
		return s.sendJob(r, j)
	}
	if err != nil { // a replayed job may be gone: it was not waited for
		prefs.applied = nil
	}
	if err == nil && j != nil {
		receipt.State = j.State
	}
	prefs.applyAsync()
	prefs.report(r)
	r.sendReceipt(view.Receipt{
		JobID: receipt.JobID, State: receipt.State, CreatedAt: job.Time(receipt.CreatedAt), Warnings: r.warnings,
	})
	return nil
}

// acceptedAt sets the address of what was accepted, by its path.
func (r *call) acceptedAt(path string, replayed bool) {
	r.Set(fiber.HeaderLocation, r.server.links.At(path))
	r.relate(path, "status")
	if replayed {
		r.Set(headerReplayed, "true")
	}
}

// getJob answers with the job, or with 304 while nothing happened to it. A
// client that is willing to wait gets it at the next change of its state: at
// once if it is final, or if the client has an earlier view of it.
func (s *Server) getJob(r *call) error {
	id, prefs := r.jobID, r.preferences()
	j, err := s.deps.Reader.Job(r.ctx, r.caller.ClientID, id)
	if err != nil {
		return err
	}
	known := r.list(fiber.HeaderIfNoneMatch)
	if j.State.Final() || known != "" && !header.MatchesETag(known, s.jobTag(r, j)) {
		prefs.applyWait()
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
	prefs.report(r)
	if r.unchanged(s.jobTag(r, j)) {
		s.jobHeaders(r, j)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	return s.sendJob(r, j)
}

// sendJob answers with the job, in the view that the client prefers.
func (s *Server) sendJob(r *call, j *job.Job) error {
	s.jobHeaders(r, j)
	attempt := j.CurrentAttempt()
	if r.unfinished() && j.State.Final() {
		attempt = job.Attempt{Number: j.Attempt, State: job.Running}
	}
	if attempt.State == job.Failed {
		r.inLanguage(j.Language)
	}
	if r.wantsDocument() {
		document := s.links.Document(j.Origin(), attempt)
		return r.send(fiber.StatusOK, mediaOf(document), document)
	}
	v := s.jobViewOf(j, s.deps.Clock())
	v.Warnings = r.warnings
	return r.json(fiber.StatusOK, v)
}

// jobHeaders sets what the header says of a job. Retry-After is the advised
// wait before the next look while the job is not final, and before the next
// attempt when it has failed (draft section 5.1).
func (s *Server) jobHeaders(r *call, j *job.Job) {
	r.Set(fiber.HeaderETag, s.jobTag(r, j))
	r.Vary(fiber.HeaderAccept)
	switch {
	case !j.State.Final() || r.unfinished():
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(s.pollAfter(j)))
	case j.State == job.Failed && j.Failure != nil && j.Failure.Retryable && j.Failure.RetryAfter > 0:
		r.Set(fiber.HeaderRetryAfter, strconv.Itoa(j.Failure.RetryAfter))
	}
	if hasResult(j, s.deps.Clock()) && !r.unfinished() {
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

// pausedPoll is the same of a job that waits for an operator.
const pausedPoll = 5

// pollAfter is the advised wait before the next look, in whole seconds: 1, or
// for a job that waits for its time, until then but at most maxPoll.
func (s *Server) pollAfter(j *job.Job) int {
	switch {
	case j.Waiting == job.WaitingPaused:
		return pausedPoll
	case !j.State.Waiting() || j.Throttled() || j.Paused():
		return 1
	}
	return min(maxPoll, max(1, problem.Seconds(s.deps.Real(j.RunAt).Sub(s.deps.Real(s.deps.Clock())))))
}

// filteredCost is as how many requests a list counts whose filter may have to
// look at 20,000 jobs.
const filteredCost = 10

func (s *Server) listJobs(r *call) error {
	q := job.Query{
		State: job.State(r.Query("state")), Type: job.Type(r.Query("type")), WorkKind: job.Kind(r.Query("work_kind")),
		CorrelationID: r.Query("correlation_id"),
		BatchID:       query.IDOf(r.Query("batch_id")), ScheduleID: query.IDOf(r.Query("schedule_id")),
		CreatedAfter: query.TimeOf(r.Query("created_after")), CreatedBefore: query.TimeOf(r.Query("created_before")),
	}
	if q.State != "" || q.Type != "" || q.WorkKind != "" || q.CorrelationID != "" {
		const more = " A list that is filtered by state, type, kind or correlation id counts as %d."
		if err := s.limitItems(r, filteredCost, more); err != nil {
			return err
		}
	}
	return s.sendJobs(r, q, "jobs?"+r.filters(), s.summaryViewOf)
}

// sendJobs answers with the page of a list of jobs that the query asks for.
func (s *Server) sendJobs(r *call, q job.Query, scope string, show func(*job.Job) summaryView) error {
	return paged(r, scope, show, func(after job.ID, limit int) ([]*job.Job, job.ID, error) {
		q.After, q.Limit = after, limit
		page, err := s.deps.Reader.List(r.ctx, r.caller.ClientID, q)
		return page.Jobs, page.Next, err
	})
}
