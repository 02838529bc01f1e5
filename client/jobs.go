package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// ExponentialBackoff starts with the wait `base` and doubles it on each retry, up to `most`. Each actual wait is random, between 0 and the
// computed wait.
func ExponentialBackoff(base, most time.Duration) *Backoff {
	return &Backoff{Strategy: "EXPONENTIAL", Base: base.String(), Max: most.String()}
}

// ConstantBackoff waits for the same time on each retry, without jitter.
func ConstantBackoff(delay time.Duration) *Backoff {
	return &Backoff{Strategy: "CONSTANT", Delay: delay.String()}
}

// ListedBackoff uses the delays in order, then repeats the last one, without jitter.
func ListedBackoff(delays ...time.Duration) *Backoff {
	b := &Backoff{Strategy: "LIST"}
	for _, d := range delays {
		b.Delays = append(b.Delays, d.String())
	}
	return b
}

// Kind describes a work kind.
type Kind struct {
	Name string `json:"work_kind"`
	Does string `json:"does"`
}

// Submit submits a job. When it returns without an error, the job is stored and will run even if the service restarts. A retry has the
// same idempotency key, so there is only one job.
func (c *Client) Submit(ctx context.Context, request JobRequest, options ...Option) (*Accepted, error) {
	r := post(options, "jobs").with(request).keyed()
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		accepted := &Accepted{}
		if err := r.decode(a, accepted); err != nil {
			return nil, err
		}
		return accepted, nil
	}
	job, err := c.readJob(ctx, r, a)
	if err != nil {
		return nil, err
	}
	return &Accepted{JobID: job.JobID, State: job.State, CreatedAt: job.CreatedAt, Warnings: job.Warnings, Job: job, Meta: job.Meta}, nil
}

// Final reports whether the job has ended. Unknown states are not final.
func (j *Job) Final() bool { return j.State == Succeeded || j.State == Failed || j.State == Canceled }

// Job returns a job. With IfNoneMatch it returns ErrNotModified if the job has not changed. With PreferWait, the service delays the
// response until the job's state changes.
func (c *Client) Job(ctx context.Context, id string, options ...Option) (*Job, error) {
	r := get(options, "jobs", id).of(id)
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.readJob(ctx, r, a)
}

// readJob decodes a job. If the caller's Accept header asked for an outcome document, readJob converts the document to a job. The content
// type does not distinguish the two: both can be application/json.
func (c *Client) readJob(ctx context.Context, r *request, a *fullResponse) (*Job, error) {
	job := &Job{}
	if mediaType(a.header.Get("Content-Type")) != problemType {
		if err := r.decode(a, job); err != nil {
			return nil, err
		}
	}
	if job.State == "" {
		o := &Outcome{}
		if err := r.decode(a, o); err != nil {
			return nil, err
		}
		if o.JobStatus != "" {
			job = jobOf(o)
			job.JobID = cmp.Or(job.JobID, r.id) // an outcome document may omit jobId
			c.received(ctx, o)
		}
	}
	if err := r.checkID(a, job.JobID); err != nil {
		return nil, err
	}
	if string(job.Params) == "null" {
		job.Params = nil
	}
	job.fill(a)
	c.received(ctx, job.Failure)
	return job, nil
}

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

// BatchItem is an item of a batch. An accepted item has JobID and State. A refused item has Failure with Violations.
type BatchItem struct {
	ItemID  string   `json:"item_id"`
	JobID   string   `json:"job_id"`
	State   string   `json:"state"`
	Failure *Outcome `json:"failure"`
}

// Final reports whether the batch is complete.
func (b *Batch) Final() bool { return TerminalStatus(b.Status) }

// Final reports whether the operation has ended.
func (b *Bulk) Final() bool { return !b.FinishedAt.IsZero() }

// BulkItems lists the jobs of a bulk operation. If result is not "", it lists only jobs with this result.
func (c *Client) BulkItems(ctx context.Context, id, result string) iter.Seq2[BulkItem, error] {
	return list[BulkItem](ctx, c, get(nil, "bulk", id, "items").where("result", result), false)
}

// Attempts lists a job's attempts, oldest first.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	all, err := collect(list[Attempt](ctx, c, get(nil, "jobs", id, "attempts"), false))
	for _, attempt := range all {
		c.received(ctx, attempt.Failure)
	}
	return all, err
}

// Attempt returns the outcome document of an attempt. The first attempt is 1. The document does not change after the attempt's end.
func (c *Client) Attempt(ctx context.Context, id string, attempt int, options ...Option) (*Outcome, error) {
	r := get(options, "jobs", id, "attempts", strconv.Itoa(attempt)).of(id)
	o := &Outcome{}
	a, err := c.call(ctx, r, o)
	if err == nil && o.JobID != "" { // jobId may be absent
		err = r.checkID(a, o.JobID)
	}
	if err != nil {
		return nil, err
	}
	c.received(ctx, o)
	return o, nil
}

// Report returns the report of a finished attempt. Attempt 0 means the latest attempt. While the attempt runs, the error is a Problem with
// code RFA_JOB_NOT_FINISHED and RetryAfter set. With PreferWait the service waits for the report.
func (c *Client) Report(ctx context.Context, id string, attempt int, options ...Option) (*Report, error) {
	r := get(options, "jobs", id, "report").of(id)
	if attempt != 0 {
		r.where("attempt", strconv.Itoa(attempt))
	}
	report, err := fetch[Report](ctx, c, r)
	if err == nil {
		c.received(ctx, report.Failure)
	}
	return report, err
}

// Result is the output of a job.
type Result struct {
	ContentType string
	Data        []byte // verified with a digest
	Meta
}

// resultTime is added to the timeout of a try, because results are large.
const resultTime = 5 * time.Minute

// Result returns the output of a job, up to 64 MiB. It verifies the bytes with the digest of the response (RFC 9530), or else with the
// job's checksum. It never returns unverified bytes. If the job has not ended, the error is a Problem with code RFA_JOB_NOT_FINISHED. If
// the job ended without a result, the error is a Problem with the code RFA_RESULT_NOT_FOUND.
func (c *Client) Result(ctx context.Context, id string, options ...Option) (*Result, error) {
	r := get(options, "jobs", id, "result")
	r.limit, r.wait, r.raw = maxResult, resultTime, true
	r.set("Accept", "*/*")
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) error {
		err := r.unexpected(a, reason)
		err.Body = nil
		return err
	}
	if a.status != http.StatusOK {
		return nil, bad("it is not the whole result")
	}
	matches, known := digestMatches(a.header, a.body, "Repr-Digest", "Content-Digest")
	if !known {
		job, err := c.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		if matches, known = job.Result.matches(a.body); !known {
			return nil, bad("neither it nor the job has a digest")
		}
	}
	if !matches {
		return nil, bad("the bytes do not match their digest")
	}
	result := &Result{ContentType: a.header.Get("Content-Type"), Data: a.body}
	result.fill(a)
	return result, nil
}

// digestMatches compares the body with the digests in the given header fields. It ignores unknown algorithms. `known` is true if there is
// a digest with a known algorithm. `matches` is true if the body matches all such digests.
func digestMatches(h http.Header, body []byte, fields ...string) (matches, known bool) {
	sum, long := sha256.Sum256(body), sha512.Sum512(body)
	for _, name := range fields {
		digests, err := dictionary(h, name)
		if err != nil {
			return false, true // an unreadable digest does not match
		}
		for algorithm, sum := range map[string][]byte{"sha-256": sum[:], "sha-512": long[:]} {
			member, sent := digests.Get(algorithm)
			if sent && subtle.ConstantTimeCompare(bytesOf(member), sum) == 0 {
				return false, true
			}
			known = known || sent
		}
	}
	return known, known
}

func (r *ResultInfo) matches(body []byte) (matches, known bool) {
	if r == nil || r.Checksum == nil || r.Checksum.Algorithm != "sha256" {
		return false, false
	}
	want, err := hex.DecodeString(r.Checksum.Value)
	sum := sha256.Sum256(body)
	return err == nil && subtle.ConstantTimeCompare(want, sum[:]) == 1, true
}
