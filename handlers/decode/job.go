package decode

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// submission is a request for a job (section 8, submit job).
type submission struct {
	req       job.Request
	autoRetry *bool // nil: it says nothing
}

// jobReaders are those that read a request before, with the table of its members.
var jobReaders = sync.Pool{New: func() any {
	r := &jobReader{decoder: newDecoder(nil, Limits{})}
	r.known = append(r.members(), r.keyMember())
	return r
}}

// jobReader reads requests one after the other.
type jobReader struct {
	*decoder
	submission
	known []member
}

// Job reads the body of a request for a job. key is that of the header. An
// error is a body that cannot be read to its end. All else that is wrong is left
// in the request's Violations, so that the use case can add what it finds.
func Job(body []byte, key string, limits Limits) (job.Request, error) {
	r := jobReaders.Get().(*jobReader)
	defer func() {
		r.reset(nil, Limits{}) // the body is the caller's
		r.submission = submission{}
		jobReaders.Put(r)
	}()
	r.reset(body, limits)
	r.req.IdempotencyKey, r.req.Hash = r.keyed(key, r.known)
	if r.err != nil {
		return job.Request{}, r.result()
	}
	r.complete(r.decoder)
	r.req.Violations, r.req.Unlisted, r.req.Malformed = r.request()
	return r.req, nil
}

// members are those of a job in any request, the idempotency key aside.
func (s *submission) members() []member {
	return []member{
		{"type", required, set(&s.req.Type, readType)},
		{"work_kind", optional, set(&s.req.WorkKind, readKind)},
		{"execution_at", optional, set(&s.req.ExecutionAt, pointer(readTime))},
		{"callback", optional, set(&s.req.Callback, readURL)},
		{"params", optional, set(&s.req.Params, readParams)},
		{"auto_retry", optional, set(&s.autoRetry, pointer(readBool))},
		{"retry", optional, set(&s.req.Retry, readRetry)},
		{"event", optional, set(&s.req.Emit, readEmission)},
		{"correlation_id", optional, set(&s.req.CorrelationID, readCorrelation)},
	}
}

// complete adds what depends on several members, which may come in any order. A job with
// a policy is retried by the service, unless the request says otherwise.
func (s *submission) complete(d *decoder) {
	r := &s.req
	r.AutoRetry = r.Retry != nil
	if s.autoRetry != nil {
		r.AutoRetry = *s.autoRetry
	}
	if d.err == nil && len(r.Params) > 0 {
		readWork(d, r)
	}
}

var readType = oneOf("type", job.Types, "The type must be "+OneOf(job.Types)+".")

var readKind = parsed(func(d *decoder, text string) (job.Kind, string) {
	if k := job.Kind(text); k.Valid() || d.limits.TestBed && k == job.Custom {
		return k, ""
	}
	kinds := job.Kinds()
	if d.limits.TestBed {
		kinds = job.AllKinds()
	}
	return "", noSuch(d, "work kind", text, kinds, "It must be "+OneOf(kinds)+", or be left out to have one drawn.")
})

func readParams(d *decoder) (json.RawMessage, bool) {
	if !d.begins('{', "an object") {
		return nil, false
	}
	return readPayload(d)
}

func readEmission(d *decoder) (*job.Emission, bool) {
	e := &job.Emission{}
	return e, d.object(emissionMembers(e))
}

// emissionMembers are those of an event of the client's own.
func emissionMembers(e *job.Emission) []member {
	return []member{
		{"name", required, set(&e.Name, readEventName)},
		{"data", optional, set(&e.Data, readPayload)},
	}
}

// Values of a retry policy, made once.
var (
	failureCodes    = job.FailureCodes()
	readFailureCode = choice("code of a failure", failureCodes)
	readMaxAttempts = integer(1, math.MaxInt) // the use case knows the limit
	readRetryCodes  = list(len(failureCodes), "codes", readFailureCode)
	readStrategy    = choice("strategy", job.Strategies)
	readDelay       = as(readDuration, func(delay time.Duration) []time.Duration { return []time.Duration{delay} })
	readDelays      = list(job.MaxDelays, "delays", readDuration)
)

// readRetry reads what a request says about the attempts of its job.
func readRetry(d *decoder) (*job.RetryPolicy, bool) {
	p := &job.RetryPolicy{}
	return p, d.object([]member{
		{"max_attempts", optional, set(&p.MaxAttempts, readMaxAttempts)},
		{"backoff", optional, func(d *decoder) { readBackoff(d, p) }},
		{"codes", optional, set(&p.Codes, readRetryCodes)},
	})
}

// backoffForm says what a backoff is.
const backoffForm = `A backoff is {"strategy": "EXPONENTIAL", "base": "1s", "max": "1m"}, {"strategy": "CONSTANT", "delay": "5s"} or ` +
	`{"strategy": "LIST", "delays": ["1s", "10s", "1m"]}.`

// backoffDelays are the members that a strategy has, of base, max, delay and delays.
var backoffDelays = map[job.Strategy][4]bool{
	job.Exponential: {true, true, false, false},
	job.Constant:    {false, false, true, false},
	job.Listed:      {false, false, false, true},
}

func readBackoff(d *decoder, p *job.RetryPolicy) {
	var base, most, delay, delays []time.Duration
	d.object([]member{
		{"strategy", optional, set(&p.Strategy, readStrategy)},
		{"base", optional, set(&base, readDelay)},
		{"max", optional, set(&most, readDelay)},
		{"delay", optional, set(&delay, readDelay)},
		{"delays", optional, set(&delays, readDelays)},
	})
	if !d.fine() {
		return // the rest may be missing because it was wrong
	}
	p.Delays = slices.Concat(base, most, delay, delays)
	given := [4]bool{len(base) > 0, len(most) > 0, len(delay) > 0, len(delays) > 0}
	switch wanted, known := backoffDelays[p.Strategy]; {
	case !known || given != wanted:
		d.invalid(backoffForm)
	case p.Strategy == job.Exponential && base[0] > most[0]:
		d.invalid(fmt.Sprintf("The base must not be longer than the max, and %s is longer than %s.", base[0], most[0]))
	}
}
