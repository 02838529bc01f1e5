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
		if err := decode(r, a, accepted); err != nil {
			return nil, err
		}
		return accepted, nil
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
	r.id = id
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.readJob(ctx, r, a)
}

// readJob reads an answer that shows a job. An outcome document, which the
// service sends if the caller's Accept asks for it, becomes one. Its type does
// not tell: that of a job that has not failed is application/json.
func (c *Client) readJob(ctx context.Context, r *request, a *answer) (*Job, error) {
	job := &Job{}
	if mediaType(first(a.header, "Content-Type")) != problemType {
		if err := decode(r, a, job); err != nil {
			return nil, err
		}
	}
	if job.State == "" {
		o := &Outcome{}
		if err := decode(r, a, o); err != nil {
			return nil, err
		}
		if o.JobStatus != "" {
			job = jobOf(o)
			job.JobID = orDefault(job.JobID, r.id) // the member may be absent
			c.received(ctx, o)
		}
	}
	if err := r.checkID(a, job.JobID); err != nil {
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

// jobOf gives what an outcome document tells of a job.
func jobOf(o *Outcome) *Job {
	j := &Job{
		JobID: o.JobID, State: o.JobStatus, Attempt: o.Attempt, CorrelationID: o.CorrelationID,
		CreatedAt: o.SubmittedAt, FinishedAt: o.CompletedAt,
	}
	switch o.JobStatus {
	case StatusCompleted:
		j.State, j.Outcome = Succeeded, "SUCCESS"
	case StatusCancelled:
		j.State, j.Outcome, j.CanceledAt = Canceled, "CANCELED", o.CompletedAt
	case StatusFailed, StatusTimedOut:
		j.State, j.Outcome, j.Failure = Failed, "FAILED", o
	}
	return j
}

// received notes when a document came, and logs what contradicts the draft.
func (c *Client) received(ctx context.Context, o *Outcome) {
	if o == nil {
		return
	}
	o.ReceivedAt = c.now()
	c.warn(ctx, o)
}

func (c *Client) warn(ctx context.Context, o *Outcome) {
	for _, warning := range o.Warnings {
		c.log.WarnContext(ctx, "forgerun: inconsistent document", "jobId", line(o.JobID), "warning", warning)
	}
}

// Cancel ends a job that is not final. A final one stays as it is: the state
// tells. Safe to repeat, and repeated when an answer is lost.
func (c *Client) Cancel(ctx context.Context, id string, options ...Option) (*Changed, error) {
	return c.change(ctx, id, "cancel", anyTime, options)
}

// Retry queues the next attempt of a FAILED job. A job that is not final stays
// as it is; one that has succeeded, was canceled or has no attempts left is a
// Problem with status 409.
//
// It is repeated after 429 and 503 only. When an answer is lost the attempt may
// have begun, and may have ended by now, so that a repetition would begin
// another one: read the job, whose Attempt tells, before you call it again.
func (c *Client) Retry(ctx context.Context, id string, options ...Option) (*Changed, error) {
	return c.change(ctx, id, "retry", ifRefused, options)
}

func (c *Client) change(ctx context.Context, id, what string, repeat repetition, options []Option) (*Changed, error) {
	r, err := post(options, "v1", "jobs", id, what)
	if err != nil {
		return nil, err
	}
	r.id, r.repeat = id, repeat
	changed := &Changed{}
	a, err := c.call(ctx, r, changed)
	if err != nil {
		return nil, err
	}
	changed.RequestID = a.requestID()
	return changed, nil
}

// Delete removes a final job with all that belongs to it. Safe to repeat.
func (c *Client) Delete(ctx context.Context, id string, options ...Option) error {
	r, err := newRequest(http.MethodDelete, options, []string{"v1", "jobs", id})
	if err != nil {
		return err
	}
	a, err := c.send(ctx, r)
	if err == nil && a.status != http.StatusNoContent {
		err = r.wrong(a, "a deleted job is answered with 204")
	}
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
func (c *Client) Attempt(ctx context.Context, id string, attempt int, options ...Option) (*Outcome, error) {
	r, err := get(options, "v1", "jobs", id, "attempts", strconv.Itoa(attempt))
	if err != nil {
		return nil, err
	}
	r.id = id
	o := &Outcome{}
	a, err := c.call(ctx, r, o)
	if err == nil && o.JobID != "" { // the member may be absent
		err = r.checkID(a, o.JobID)
	}
	if err != nil {
		return nil, err
	}
	c.received(ctx, o)
	return o, nil
}

// Report reads the report of an attempt that has ended; 0 is the latest one.
func (c *Client) Report(ctx context.Context, id string, attempt int, options ...Option) (*Report, error) {
	r, err := get(options, "v1", "jobs", id, "report")
	if err != nil {
		return nil, err
	}
	r.id = id
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

// Events lists the events of all the client's jobs, batches and webhooks,
// oldest first, up to now. Stream goes on from there.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return list[Event]{c: c, segments: []string{"v1", "events"}, endless: true}.read(ctx)
}

func get(options []Option, segments ...string) (*request, error) {
	return newRequest(http.MethodGet, options, segments)
}

func post(options []Option, segments ...string) (*request, error) {
	return newRequest(http.MethodPost, options, segments)
}

func newRequest(method string, options []Option, segments []string) (*request, error) {
	s, err := gather(options)
	if err != nil {
		return nil, err
	}
	target, err := path(segments...)
	if err != nil {
		return nil, err
	}
	return &request{method: method, path: target, settings: s}, nil
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
