package decode

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// sentSchedule has the members of a schedule and of a change of one.
type sentSchedule struct {
	api.SchedulePatch
	Paused bool `json:"paused"`
}

// Schedule reads the body of a request for a schedule. The error is for a body that cannot be read to its end. Other mistakes
// are left in the request's Violations.
func Schedule(body []byte, limits Limits) (job.ScheduleRequest, error) {
	r := newReader(public, body, limits)
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

// SchedulePatch reads the body of a change of a schedule: a JSON merge patch (RFC 7396), in which null removes what a
// schedule need not have.
func SchedulePatch(body []byte, limits Limits) (p job.SchedulePatch, err error) {
	r := newReader(public, body, limits)
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

// removed sets a member that the body has, but without a value.
func removed[T any](r *reader, name string, to **T) {
	if *to == nil && slices.ContainsFunc(r.outer, func(m member) bool { return m.name == name }) {
		*to = new(T)
	}
}

// schedule returns what the body says about a schedule.
func (r *reader) schedule(sent *sentSchedule) job.SchedulePatch {
	p := job.SchedulePatch{Name: sent.Name, Cron: sent.Cron, TimeZone: sent.TimeZone, Interval: sent.Interval,
		Jitter: sent.Jitter, Overlap: sent.Overlap, CatchUp: sent.CatchUp, CatchUpMax: sent.CatchUpMax}
	if at := (*time.Time)(sent.StartAt); at != nil {
		p.StartAt = &at
	}
	if at := (*time.Time)(sent.EndAt); at != nil {
		p.EndAt = &at
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
