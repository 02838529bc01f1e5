package client

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// Attempts lists a job's attempts from the first to the current one.
func (c *Client) Attempts(ctx context.Context, id string) ([]Attempt, error) {
	all, err := collect(list[Attempt](ctx, c, get(nil, "jobs", id, "attempts"), false))
	for _, attempt := range all {
		c.received(ctx, attempt.Failure)
	}
	return all, err
}

// Attempt reads the outcome document of one attempt, counted from 1. Once the attempt has ended it never changes.
func (c *Client) Attempt(ctx context.Context, id string, attempt int, options ...Option) (*Outcome, error) {
	r := get(options, "jobs", id, "attempts", strconv.Itoa(attempt)).of(id)
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

// Report reads the report of an attempt that has ended; 0 is the latest one. While there is none the error is a Problem with the code
// RFA_JOB_NOT_FINISHED, whose RetryAfter says when to look again; with PreferWait the service waits for it.
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

// Result is the bytes that a job has produced.
type Result struct {
	ContentType string
	Data        []byte // as the service's digest says they are
	Meta
}

// resultTime is added to the time that one try may take: results are large.
const resultTime = 5 * time.Minute

// Result reads the bytes that a job has produced, up to 64 MiB, and verifies them against the digest that the service sends (RFC 9530)
// or, without one, the checksum that the job shows. Bytes that are not verified are not returned. A job that is not final is a Problem as
// in Report; one that has ended without a result is a Problem with the code RFA_RESULT_NOT_FOUND.
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

// digestMatches compares a body with each digest in the fields whose algorithm is known. All must match.
func digestMatches(h http.Header, body []byte, fields ...string) (matches, known bool) {
	sum, long := sha256.Sum256(body), sha512.Sum512(body)
	for _, name := range fields {
		digests, err := dictionary(h, name)
		if err != nil {
			return false, true // what cannot be read does not confirm anything
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
