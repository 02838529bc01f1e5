package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// Job reads the body of a request for a job. `key` is the Idempotency-Key header. Job returns an error only if the body is invalid JSON or
// exceeds a limit of the reader. Other mistakes are in Request.Violations.
func Job(body []byte, key string, limits Limits) (job.Request, error) {
	r := newReader(public, body, limits)
	defer r.done()
	var sent struct {
		api.JobRequestMembers
		IdempotencyKey string `json:"idempotency_key"`
	}
	if r.document("JobRequest", &sent); r.err != nil {
		return job.Request{}, r.result()
	}
	req := r.job(&sent.JobRequestMembers)
	req.IdempotencyKey, req.Hash = r.keyed(key, sent.IdempotencyKey)
	req.Violations, req.Unlisted, req.Malformed = r.request()
	return req, nil
}

// job converts a decoded submission. A retry policy implies auto_retry, unless the request sets auto_retry itself.
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

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

const backoffForm = `A backoff is {"strategy": "EXPONENTIAL", "base": "1s", "max": "1m"}, {"strategy": "CONSTANT", "delay": "5s"} or ` +
	`{"strategy": "LIST", "delays": ["1s", "10s", "1m"]}.`

// backoffDelays says which members each strategy requires, in the order base, max, delay, delays.
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
			fmt.Sprintf("base must not be longer than max, but %s is longer than %s.", p.Delays[0], p.Delays[1]))
	}
	return p
}

// Batch reads the body of a request for many jobs. `key` is the Idempotency-Key header. Batch returns an error if it refuses the whole
// batch. Mistakes in an item are in the Violations of the item's Request, with pointers relative to the item. All items together list at
// most job.MaxViolations violations; further violations are only counted.
func Batch(body []byte, key string, limits Limits) (job.BatchRequest, error) {
	r := newReader(public, body, limits)
	defer r.done()
	r.wrong = []string{"jobs"} // do not decode the items here; readItem does
	var sent struct {
		IdempotencyKey string `json:"idempotency_key"`
	}
	r.document("BatchRequest", &sent)
	b := &batchReader{reader: r, ids: map[string]bool{}}
	for i, item := range r.items[:min(len(r.items), job.MaxBatchItems)] {
		if b.err == nil {
			b.readItem(i, item)
		}
	}
	if n := len(r.items); r.items != nil && (n == 0 || n > job.MaxBatchItems && b.err == nil) {
		b.malformedAt("/jobs", fmt.Sprintf("A batch has 1 to %d jobs.", job.MaxBatchItems))
	}
	b.req.IdempotencyKey, b.req.Hash = r.keyed(key, sent.IdempotencyKey)
	return b.req, r.result()
}

type batchReader struct {
	*reader
	req      job.BatchRequest
	ids      map[string]bool
	reported int
}

func (b *batchReader) readItem(i int, item []byte) {
	at := "/jobs/" + strconv.Itoa(i)
	if item[0] != '{' {
		b.malformedAt(at, "This must be an object.")
		return
	}
	r := newReader(public, item, b.limits)
	defer r.done()
	r.base, r.limit, r.guess, r.named, r.listed = at, job.MaxViolations-b.reported, b.guess, b.named, b.listed
	var sent struct {
		api.JobRequestMembers
		ItemID *string `json:"item_id"`
	}
	r.document("BatchItemRequest", &sent)
	if b.guess, b.named, b.listed = r.guess, r.named, r.listed; b.named > maxAllMembers || b.listed > maxElements {
		b.add(&r.findings)
		b.err = r.err
		return
	}
	req := r.job(&sent.JobRequestMembers)
	req.Violations = r.all()
	req.Violations = req.Violations[:min(r.limit, len(req.Violations))]
	req.Malformed = len(r.form) > 0
	b.req.Unlisted += r.count() - len(req.Violations)
	b.reported += len(req.Violations)
	for n := range req.Violations {
		req.Violations[n].Pointer = strings.TrimPrefix(req.Violations[n].Pointer, at)
	}
	id := cmp.Or(value(sent.ItemID), strconv.Itoa(i))
	if b.ids[id] {
		if sent.ItemID != nil {
			at += "/item_id"
		}
		b.malformedAt(at, "An earlier item has the same id. An item without an id uses its index, from 0.")
	}
	b.ids[id] = true
	b.req.Items = append(b.req.Items, job.ItemRequest{ItemID: id, Request: req})
}

type sentSchedule struct {
	job.SchedulePatch
	StartAt, EndAt *time.Time
	Job            *api.JobRequestMembers
	Paused         bool
}

// Schedule reads the body of a request for a schedule. Schedule returns an error only if the body is invalid JSON or exceeds a limit of the
// reader. Other mistakes are in ScheduleRequest.Violations.
func (l Limits) Schedule(body []byte) (job.ScheduleRequest, error) {
	r := newReader(public, body, l)
	defer r.done()
	var sent sentSchedule
	if r.document("ScheduleRequest", &sent); r.err != nil {
		return job.ScheduleRequest{}, r.result()
	}
	p := r.schedule(&sent)
	req := job.ScheduleRequest{Schedule: job.Schedule{Overlap: job.OverlapAllow, CatchUp: job.CatchUpNone,
		CatchUpMax: job.DefaultCatchUp, Paused: sent.Paused}}
	p.Apply(&req.Schedule)
	if p.Job != nil {
		req.Job, req.Warnings = *p.Job, p.Job.Warnings
	}
	req.Violations, req.Unlisted, req.Malformed = r.request()
	return req, nil
}

// SchedulePatch reads a change to a schedule, a JSON merge patch (RFC 7396). null removes an optional member.
func (l Limits) SchedulePatch(body []byte) (p job.SchedulePatch, err error) {
	r := newReader(public, body, l)
	defer r.done()
	var sent sentSchedule
	if r.document("SchedulePatch", &sent); r.err != nil {
		return p, r.result()
	}
	p = r.schedule(&sent)
	removed(r, "name", &p.Name)
	removed(r, "cron", &p.Cron)
	removed(r, "time_zone", &p.TimeZone)
	removed(r, "interval", &p.Interval)
	removed(r, "jitter", &p.Jitter)
	removed(r, "start_at", &p.StartAt)
	removed(r, "end_at", &p.EndAt)
	p.Times = p.Cron != nil || p.TimeZone != nil || p.Interval != nil || p.Jitter != nil || p.StartAt != nil || p.EndAt != nil
	p.Violations, p.Unlisted, p.Malformed = r.request()
	return p, nil
}

// If the body sets the member `name` to null, removed stores a pointer to a zero value in *to.
func removed[T any](r *reader, name string, to **T) {
	if *to == nil && slices.ContainsFunc(r.outer, func(m member) bool { return m.name == name }) {
		*to = new(T)
	}
}

func (r *reader) schedule(sent *sentSchedule) job.SchedulePatch {
	p := sent.SchedulePatch
	if sent.StartAt != nil {
		p.StartAt = &sent.StartAt
	}
	if sent.EndAt != nil {
		p.EndAt = &sent.EndAt
	}
	if sent.Job != nil {
		r.base = "/job"
		req := r.job(sent.Job)
		r.base = ""
		for i := range req.Warnings {
			req.Warnings[i].Pointer = "/job" + req.Warnings[i].Pointer
		}
		p.Job = &req
	}
	return p
}
