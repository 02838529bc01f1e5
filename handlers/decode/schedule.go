package decode

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

// schedule reads a schedule, or a change of one: what the body has is set in the patch.
type schedule struct {
	*decoder
	limits Limits
	patch  job.SchedulePatch
}

// Schedule reads the body of a request for a schedule. An error is a body that cannot be
// read to its end. All else that is wrong is left in the request's Violations.
func Schedule(body []byte, limits Limits) (job.ScheduleRequest, error) {
	s := &schedule{decoder: newDecoder(body), limits: limits}
	paused := false
	s.document(append(s.members(), member{name: "paused", read: func() { paused = s.boolean() }}))
	s.require(s.patch.Job != nil, "job")
	if s.err != nil {
		return job.ScheduleRequest{}, s.result()
	}
	r := job.ScheduleRequest{Schedule: job.Schedule{
		Overlap: job.OverlapAllow, CatchUp: job.CatchUpNone, CatchUpMax: job.DefaultCatchUp, Paused: paused,
	}}
	s.patch.Apply(&r.Schedule)
	if s.patch.Job != nil {
		r.Job, r.Warnings = *s.patch.Job, s.patch.Job.Warnings
	}
	r.Violations, r.Unlisted, r.Malformed = s.findings()
	return r, nil
}

// SchedulePatch reads the body of a change of a schedule: a JSON merge patch (RFC 7396),
// in which null removes what a schedule need not have.
func SchedulePatch(body []byte, limits Limits) (job.SchedulePatch, error) {
	s := &schedule{decoder: newDecoder(body), limits: limits}
	members := s.members()
	for i, m := range members {
		if slices.Contains([]string{"overlap", "catch_up", "catch_up_max", "job"}, m.name) {
			members[i].read = s.notNull(m.read)
		}
	}
	s.document(members)
	if s.err != nil {
		return job.SchedulePatch{}, s.result()
	}
	if len(s.outer) == 0 && len(s.form) == 0 {
		s.malformedAt("", "The object must have at least one of "+strings.Join(listed(members), ", ")+".")
	}
	s.patch.Violations, s.patch.Unlisted, s.patch.Malformed = s.findings()
	return s.patch, nil
}

func (s *schedule) members() []member {
	p := &s.patch
	times := func(name string, read func()) member {
		return member{name: name, read: func() { p.Times = true; read() }}
	}
	return []member{
		{name: "name", read: func() { p.Name = new(s.scheduleName()) }},
		times("cron", func() { p.Cron = new(s.cron()) }),
		times("time_zone", func() { p.TimeZone = new(s.zone()) }),
		times("interval", func() { p.Interval = new(s.length(job.MinInterval, job.MaxInterval)) }),
		times("jitter", func() { p.Jitter = new(s.length(0, job.MaxScheduleJitter)) }),
		times("start_at", func() { at, _ := s.time(); p.StartAt = &at }),
		times("end_at", func() { at, _ := s.time(); p.EndAt = &at }),
		{name: "overlap", read: func() { p.Overlap = required(s.decoder, "overlap policy", job.Overlaps) }},
		{name: "catch_up", read: func() { p.CatchUp = required(s.decoder, "catch-up policy", job.CatchUps) }},
		{name: "catch_up_max", read: func() { p.CatchUpMax = new(s.integer(1, job.MaxCatchUp, job.DefaultCatchUp)) }},
		{name: "job", read: s.readJob},
	}
}

// required reads one of the values; nil if it is absent or wrong.
func required[T ~string](d *decoder, what string, values []T) *T {
	if v, ok := choose(d, what, values); ok && v != "" {
		return &v
	}
	return nil
}

// readJob reads the request for the job of each run: that of a submission, but for what
// the schedule says itself.
func (s *schedule) readJob() {
	if !s.begins('{', "an object") {
		return
	}
	sub := &submission{decoder: s.decoder, limits: s.limits}
	members := sub.members()
	for i, m := range members {
		if m.name == "execution_at" {
			members[i] = member{name: m.name, unlisted: true, read: s.refused("The schedule says when its jobs run.")}
		}
	}
	members = append(members, member{name: "idempotency_key", unlisted: true,
		read: s.refused("The runs of a schedule have no idempotency key: each due time has one job.")})
	s.object(members)
	if s.err != nil {
		return
	}
	s.require(sub.hasType, "type")
	sub.readWork()
	for i, w := range sub.req.Warnings {
		sub.req.Warnings[i].Pointer = "/job" + w.Pointer
	}
	s.patch.Job = &sub.req
}

func (s *schedule) scheduleName() string {
	text, _ := s.text()
	if !isLine(text, job.MaxScheduleName) {
		s.invalid(fmt.Sprintf("The name must be a line of at most %d characters.", job.MaxScheduleName))
		return ""
	}
	return text
}

func (s *schedule) cron() string {
	text, ok := s.text()
	if !ok {
		return ""
	}
	if _, err := timetable.ParseCron(text); err != nil {
		s.invalid("This must be a cron expression of five fields (minute, hour, day of the month, month, day of the week), or six with " +
			`seconds before them, such as "30 4 * * MON-FRI". The time zone is a member of its own, and names such as @daily are not known.`)
		return ""
	}
	return text
}

func (s *schedule) zone() string {
	text, ok := s.text()
	if !ok {
		return ""
	}
	if _, err := timetable.Zone(text); err != nil || text == "" {
		s.invalid("This must be a time zone of the IANA database, such as Europe/Berlin or UTC.")
		return ""
	}
	return text
}

// length reads a duration in whole milliseconds within bounds, 0 if it is absent or wrong.
func (s *schedule) length(least, most time.Duration) time.Duration {
	form := fmt.Sprintf(`This must be a duration in whole milliseconds from "%s" to "%s", such as "90s" or "1h30m".`, least, shortHours(most))
	length, _ := s.span(least, most, form)
	if length%time.Millisecond != 0 {
		s.invalid(form)
		return 0
	}
	return length
}

// shortHours writes whole hours without the minutes that Go adds.
func shortHours(d time.Duration) string { return strings.TrimSuffix(d.String(), "0m0s") }
