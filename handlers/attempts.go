package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
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
	v := s.reportViewOf(report)
	if v.Failure != nil {
		r.inLanguage(v.Failure.Language)
		r.adviseRetry(*v.Failure)
	}
	return r.json(fiber.StatusOK, v)
}

// listAttempts answers with all attempts of a job: there are few.
func (s *Server) listAttempts(r *call) error {
	origin, attempts, err := s.deps.Reader.Attempts(r.ctx, r.caller.ClientID, r.jobID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(attempts, func(a job.Attempt) bool { return a.State == job.Failed }) {
		r.inLanguage(origin.Language)
	}
	return r.json(fiber.StatusOK, query.ListOf(attempts, max(query.MaxLimit, len(attempts)), func(a job.Attempt) attemptView {
		return s.attemptViewOf(origin, a)
	}))
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
	i := slices.IndexFunc(attempts, func(a job.Attempt) bool { return a.Number == n })
	if i < 0 {
		return job.Errorf(job.CodeJobNotFound, "The job has no attempt %d.", n)
	}
	document := s.links.Document(origin, attempts[i])
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
		Attempt: a.Number, State: a.State, Outcome: view.OrNull(a.Outcome), StartedAt: job.TimeOf(a.StartedAt),
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

// getResult answers with the bytes that the job produced, whole or one range of
// them, under the conditions that the client sets (RFC 9110, sections 13 and
// 14) and with their digests (RFC 9530); see onceEnded.
func (s *Server) getResult(r *call) error {
	result, err := onceEnded(s, r,
		func() (*job.StoredResult, error) { return s.deps.Reader.Result(r.ctx, r.caller.ClientID, r.jobID) },
		func(j *job.Job) bool { return j.State.Final() })
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(result.MediaType, ";")
	if err := r.checkAccept(strings.TrimSpace(media)); err != nil {
		return err
	}
	tag := `"` + hex.EncodeToString(result.SHA256[:]) + `"`
	if r.unchanged(tag) {
		s.cacheResult(r, tag, result.ExpiresAt)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	size := len(result.Body)
	part, ok := r.byteRange(tag, size)
	if !ok {
		r.Set(fiber.HeaderContentRange, "bytes */"+strconv.Itoa(size))
		return problem.WithStatus(fiber.StatusRequestedRangeNotSatisfiable,
			"The range must have some of the result's "+strconv.Itoa(size)+" bytes, which are numbered from 0.")
	}
	s.cacheResult(r, tag, result.ExpiresAt)
	r.Set(fiber.HeaderContentType, result.MediaType)
	r.Set(fiber.HeaderAcceptRanges, "bytes")
	r.Set("Repr-Digest", digest(result.SHA256))
	if part == nil {
		r.Set("Content-Digest", digest(result.SHA256))
		return r.Send(result.Body)
	}
	body := result.Body[part.First : part.Last+1]
	r.Set(fiber.HeaderContentRange, "bytes "+strconv.Itoa(part.First)+"-"+strconv.Itoa(part.Last)+"/"+strconv.Itoa(size))
	r.Set("Content-Digest", digest(sha256.Sum256(body)))
	return r.Status(fiber.StatusPartialContent).Send(body)
}

// cacheResult lets the client keep the result for as long as it can be had. It
// belongs to the one client alone.
func (s *Server) cacheResult(r *call, tag string, expires time.Time) {
	expires = s.deps.Real(expires)
	left := max(0, expires.Sub(s.deps.Real(s.deps.Clock())))
	r.Set(fiber.HeaderETag, tag)
	r.Set(fiber.HeaderCacheControl, "private, max-age="+strconv.Itoa(int(left/time.Second)))
	r.Set(fiber.HeaderExpires, expires.UTC().Format(http.TimeFormat))
	r.Vary(fiber.HeaderAccept, fiber.HeaderAuthorization)
}

// digest writes a SHA-256 as a structured field (RFC 9530, section 2).
func digest(sum [32]byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// byteRange gives the part of a body that the request asks for, nil for all of
// it; false if it has no such part. Only GET has ranges, and If-Range must name
// the strong tag; a date there never matches, since results have none.
func (r *call) byteRange(tag string, size int) (*header.Span, bool) {
	requested := r.list(fiber.HeaderRange)
	if requested == "" || r.Method() != fiber.MethodGet {
		return nil, true
	}
	if condition := r.list(fiber.HeaderIfRange); condition != "" && condition != tag {
		return nil, true
	}
	return header.ParseRange(requested, size)
}

// resultView describes a result: AVAILABLE with everything but expired_at, or
// EXPIRED with expired_at alone.
type resultView struct {
	State       string        `json:"state"`
	MediaType   string        `json:"media_type,omitempty"`
	SizeBytes   *int          `json:"size_bytes,omitempty"`
	Checksum    *checksumView `json:"checksum,omitempty"`
	ExpiresAt   *job.Time     `json:"expires_at,omitempty"`
	DownloadURL string        `json:"download_url,omitempty"`
	ExpiredAt   *job.Time     `json:"expired_at,omitempty"`
}

type checksumView struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"value"` // lower-case hex
}

func (s *Server) resultViewOf(j *job.Job, now time.Time) *resultView {
	r := j.Result
	switch {
	case r == nil:
		return nil
	case r.Expired(now):
		return &resultView{State: "EXPIRED", ExpiredAt: job.TimeOf(&r.ExpiresAt)}
	}
	return &resultView{
		State: "AVAILABLE", MediaType: r.MediaType, SizeBytes: &r.Size,
		Checksum:  &checksumView{"sha256", hex.EncodeToString(r.SHA256[:])},
		ExpiresAt: job.TimeOf(&r.ExpiresAt), DownloadURL: s.links.At(resultPath(j.ID)),
	}
}

// hasResult reports whether j's result can be had now.
func hasResult(j *job.Job, now time.Time) bool {
	return j.State == job.Succeeded && j.Result != nil && !j.Result.Expired(now)
}
