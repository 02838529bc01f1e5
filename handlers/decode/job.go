package decode

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// Job reads the body of a request for a job. key is the Idempotency-Key header. The error is for a body that cannot be read
// to its end. Other mistakes are left in the request's Violations, so that the use case can add its own.
func Job(body []byte, key string, limits Limits) (job.Request, error) {
	r := newReader(public, body, limits)
	defer r.done()
	var sent struct {
		api.JobRequestMembers
		IdempotencyKey *string `json:"idempotency_key"`
	}
	if r.document("JobRequest", &sent); r.err != nil {
		return job.Request{}, r.result()
	}
	req := r.job(&sent.JobRequestMembers)
	req.IdempotencyKey, req.Hash = r.keyed(key, sent.IdempotencyKey)
	req.Violations, req.Unlisted, req.Malformed = r.request()
	return req, nil
}

// job makes a request of what was sent. A job with a policy is retried by the service unless the request says otherwise.
func (r *reader) job(sent *api.JobRequestMembers) job.Request {
	req := job.Request{Type: sent.Type, WorkKind: value(sent.WorkKind), ExecutionAt: (*time.Time)(sent.ExecutionAt),
		Callback: value(sent.Callback), Params: sent.Params, AutoRetry: sent.Retry != nil, Retry: r.retry(sent.Retry), Emit: sent.Event,
		CorrelationID: value(sent.CorrelationID)}
	if sent.AutoRetry != nil {
		req.AutoRetry = *sent.AutoRetry
	}
	if req.WorkKind == job.Custom && !r.limits.TestBed {
		req.WorkKind = ""
		kinds := r.schemas.named()["JobRequest"].Properties["work_kind"]
		r.invalidAt(r.base+"/work_kind", r.noSuch(kinds, []string{"work_kind"}, ""))
	}
	if len(req.Params) > 0 {
		r.work(&req)
	}
	return req
}

// value returns what a pointer points to, the zero value for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
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

func (r *reader) retry(sent *api.RetryPolicy) *job.RetryPolicy {
	if sent == nil {
		return nil
	}
	p := &job.RetryPolicy{MaxAttempts: value(sent.MaxAttempts), Codes: sent.Codes}
	b := sent.Backoff
	if b == nil {
		return p
	}
	p.Strategy = job.Strategy(value(b.Strategy))
	given := [4]bool{b.Base != nil, b.Max != nil, b.Delay != nil, len(b.Delays) > 0}
	for _, text := range append([]string{value(b.Base), value(b.Max), value(b.Delay)}, b.Delays...) {
		if delay, err := time.ParseDuration(text); err == nil {
			p.Delays = append(p.Delays, delay)
		}
	}
	switch wanted, known := backoffDelays[p.Strategy]; {
	case !known || given != wanted:
		r.invalidAt(r.base+"/retry/backoff", backoffForm)
	case p.Strategy == job.Exponential && p.Delays[0] > p.Delays[1]:
		r.invalidAt(r.base+"/retry/backoff",
			fmt.Sprintf("The base must not be longer than the max, and %s is longer than %s.", p.Delays[0], p.Delays[1]))
	}
	return p
}
