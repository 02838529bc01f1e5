package client

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"time"
)

// resultTime is added to the time that one try may take: results are large.
const resultTime = 5 * time.Minute

// Result reads the bytes that a job has produced, up to 64 MiB, and verifies
// them against the digest that the service sends (RFC 9530) or, without one,
// the checksum that the job shows. Bytes that are not verified are not given.
func (c *Client) Result(ctx context.Context, id string, options ...Option) (*Result, error) {
	r, err := get(options, "v1", "jobs", id, "result")
	if err != nil {
		return nil, err
	}
	r.limit, r.wait, r.raw = maxResult, resultTime, true
	r.set("Accept", "*/*")
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	bad := func(reason string) error {
		err := r.wrong(a, reason)
		err.Body = nil
		return err
	}
	if a.status != http.StatusOK {
		return nil, bad("it is not the whole result")
	}
	matches, known := digestMatches(a.header, a.body)
	if !known {
		job, err := c.Job(ctx, id)
		if err != nil {
			return nil, err
		}
		if matches, known = job.Result.matches(a.body); !known {
			return nil, bad("neither it nor the job tells a digest")
		}
	}
	if !matches {
		return nil, bad("the bytes do not match their digest")
	}
	return &Result{
		ContentType: first(a.header, "Content-Type"), Data: a.body,
		ETag: first(a.header, "Etag"), RequestID: a.requestID(),
	}, nil
}

// digestMatches compares the body with each digest whose algorithm is known.
// All must match.
func digestMatches(h http.Header, body []byte) (matches, known bool) {
	for _, name := range []string{"Repr-Digest", "Content-Digest"} {
		dictionary, err := parseDictionary(joined(h, name))
		if err != nil {
			return false, true // what cannot be read does not confirm anything
		}
		for _, member := range dictionary {
			var sum []byte
			switch member.key {
			case "sha-256":
				s := sha256.Sum256(body)
				sum = s[:]
			case "sha-512":
				s := sha512.Sum512(body)
				sum = s[:]
			default:
				continue
			}
			digest, _ := member.value.([]byte)
			if subtle.ConstantTimeCompare(digest, sum) == 0 {
				return false, true
			}
			known = true
		}
	}
	return known, known
}

func (r *ResultInfo) matches(body []byte) (matches, known bool) {
	if r == nil || r.Checksum.Algorithm != "sha256" {
		return false, false
	}
	want, err := hex.DecodeString(r.Checksum.Value)
	sum := sha256.Sum256(body)
	return err == nil && subtle.ConstantTimeCompare(want, sum[:]) == 1, true
}
