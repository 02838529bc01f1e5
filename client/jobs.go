package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Submit submits a job: when it answers without an error the job is stored,
// and runs whatever happens to the service. A request whose answer is lost is
// sent again with the same idempotency key, so that there is one job.
func (c *Client) Submit(ctx context.Context, job JobRequest, options ...Option) (*Accepted, error) {
	r, err := keyed("/v1/jobs", job, options)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	accepted := &Accepted{
		Status: a.status, RequestID: a.requestID(), Location: first(a.header, "Location"),
		Replayed: first(a.header, "Idempotency-Replayed") == "true",
	}
	if a.status != http.StatusOK {
		return accepted, decode(r, a, accepted)
	}
	accepted.Job, err = c.readJob(ctx, r, a)
	if err != nil {
		return nil, err
	}
	accepted.JobID, accepted.State, accepted.CreatedAt = accepted.Job.JobID, accepted.Job.State, accepted.Job.CreatedAt
	return accepted, nil
}

// keyed is a POST with an idempotency key: the caller's, or a random one. The
// key belongs to the request, so that its repetitions have the same.
func keyed(path string, value any, options []Option) (*request, error) {
	s, err := gather(options)
	if err != nil {
		return nil, err
	}
	body, err := encode(value)
	if err != nil {
		return nil, err
	}
	if s.header["Idempotency-Key"] == nil {
		s.set("Idempotency-Key", newKey())
	}
	return &request{method: http.MethodPost, path: path, body: body, settings: s}, nil
}

// Job reads a job. With IfNoneMatch the error is ErrNotModified while it is
// unchanged; with PreferWait the answer comes with the next change of state.
func (c *Client) Job(ctx context.Context, id string, options ...Option) (*Job, error) {
	r, err := get(options, "v1", "jobs", id)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.readJob(ctx, r, a)
}

// readJob reads an answer that shows a job. An outcome document, which the
// service sends if the caller's Accept asks for it, becomes one.
func (c *Client) readJob(ctx context.Context, r *request, a *answer) (*Job, error) {
	job := &Job{}
	if mediaType(first(a.header, "Content-Type")) == problemType {
		job.Failure = &Outcome{}
		if err := decode(r, a, job.Failure); err != nil {
			return nil, err
		}
		job.fromOutcome(job.Failure)
	} else if err := decode(r, a, job); err != nil {
		return nil, err
	}
	if string(job.Params) == "null" {
		job.Params = nil
	}
	job.ETag, job.RequestID = first(a.header, "Etag"), a.requestID()
	job.RetryAfter = retryAfter(a.header, c.now())
	c.received(ctx, job.Failure)
	return job, nil
}

func (j *Job) fromOutcome(o *Outcome) {
	j.JobID, j.Attempt, j.CorrelationID = o.JobID, o.Attempt, o.CorrelationID
	j.CreatedAt, j.FinishedAt = o.SubmittedAt, o.CompletedAt
	switch o.JobStatus {
	case StatusFailed, StatusTimedOut:
		j.State, j.Outcome = Failed, "FAILED"
	default:
		j.State = o.JobStatus
	}
}

// received notes when a document came, and logs what contradicts the draft.
func (c *Client) received(ctx context.Context, o *Outcome) {
	if o == nil {
		return
	}
	o.ReceivedAt = c.now()
	for _, warning := range o.Warnings {
		c.log.WarnContext(ctx, "forgerun: inconsistent document", "jobId", line(o.JobID), "warning", warning)
	}
}

// Cancel ends a job that is not final. A final one stays as it is: the state
// tells. Safe to repeat, and repeated when an answer is lost.
func (c *Client) Cancel(ctx context.Context, id string) (*Changed, error) {
	return c.change(ctx, id, "cancel")
}

// Retry queues the next attempt of a FAILED job. A job that is not final stays
// as it is; one that has succeeded, was canceled or has no attempts left is a
// Problem with status 409.
//
// It is repeated when an answer is lost. If the attempt that the lost request
// began has ended by then, the repetition begins another one, or is the 409:
// with Problem.Tries above 1, read the job.
func (c *Client) Retry(ctx context.Context, id string) (*Changed, error) {
	return c.change(ctx, id, "retry")
}

func (c *Client) change(ctx context.Context, id, what string) (*Changed, error) {
	r, err := post("v1", "jobs", id, what)
	if err != nil {
		return nil, err
	}
	changed := &Changed{}
	a, err := c.call(ctx, r, changed)
	if err != nil {
		return nil, err
	}
	changed.RequestID = a.requestID()
	return changed, nil
}

// Delete removes a final job with all that belongs to it. Safe to repeat.
func (c *Client) Delete(ctx context.Context, id string) error {
	target, err := path("v1", "jobs", id)
	if err != nil {
		return err
	}
	_, err = c.send(ctx, &request{method: http.MethodDelete, path: target})
	return err
}

// Jobs lists the client's jobs, newest first, page by page as they are read.
// An error is the last thing it yields.
func (c *Client) Jobs(ctx context.Context, filter JobFilter) iter.Seq2[Job, error] {
	q := pageQuery(filter.PageSize, filter.CreatedAfter, filter.CreatedBefore)
	setIf(q, "state", filter.State)
	setIf(q, "type", filter.Type)
	setIf(q, "work_kind", filter.WorkKind)
	setIf(q, "batch_id", filter.BatchID)
	return pages[Job](ctx, c, q, "v1", "jobs")
}

// Attempts lists a job's attempts from the first to the current one.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	var all []Attempt
	for attempt, err := range pages[Attempt](ctx, c, url.Values{}, "v1", "jobs", id, "attempts") {
		if err != nil {
			return nil, err
		}
		c.received(ctx, attempt.Failure)
		all = append(all, attempt)
	}
	return all, nil
}

// Attempt reads the outcome document of one attempt, counted from 1. Once the
// attempt has ended it never changes.
func (c *Client) Attempt(ctx context.Context, id string, attempt int) (*Outcome, error) {
	r, err := get(nil, "v1", "jobs", id, "attempts", strconv.Itoa(attempt))
	if err != nil {
		return nil, err
	}
	o := &Outcome{}
	if _, err := c.call(ctx, r, o); err != nil {
		return nil, err
	}
	c.received(ctx, o)
	return o, nil
}

// Report reads the report of an attempt that has ended; 0 is the latest one.
func (c *Client) Report(ctx context.Context, id string, attempt int) (*Report, error) {
	r, err := get(nil, "v1", "jobs", id, "report")
	if err != nil {
		return nil, err
	}
	if attempt != 0 {
		r.query = url.Values{"attempt": {strconv.Itoa(attempt)}}
	}
	report := &Report{}
	a, err := c.call(ctx, r, report)
	if err != nil {
		return nil, err
	}
	report.RequestID = a.requestID()
	c.received(ctx, report.Failure)
	return report, nil
}

// JobEvents lists a job's log, oldest first, up to now.
func (c *Client) JobEvents(ctx context.Context, id string) iter.Seq2[Event, error] {
	return pages[Event](ctx, c, url.Values{}, "v1", "jobs", id, "events")
}

func get(options []Option, segments ...string) (*request, error) {
	s, err := gather(options)
	if err != nil {
		return nil, err
	}
	target, err := path(segments...)
	return &request{method: http.MethodGet, path: target, settings: s}, err
}

func post(segments ...string) (*request, error) {
	target, err := path(segments...)
	return &request{method: http.MethodPost, path: target}, err
}

func pageQuery(size int, after, before time.Time) url.Values {
	q := url.Values{}
	if size > 0 {
		q.Set("limit", strconv.Itoa(size))
	}
	if !after.IsZero() {
		q.Set("created_after", since(after))
	}
	if !before.IsZero() {
		q.Set("created_before", since(before))
	}
	return q
}

func setIf(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}
