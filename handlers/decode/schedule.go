package decode

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

// Schedule reads the body of a request for a schedule. An error is a body that cannot be
// read to its end. All else that is wrong is left in the request's Violations.
func Schedule(body []byte, limits Limits) (job.ScheduleRequest, error) {
	r := job.ScheduleRequest{Schedule: job.Schedule{Overlap: job.OverlapAllow, CatchUp: job.CatchUpNone, CatchUpMax: job.DefaultCatchUp}}
	var p job.SchedulePatch
	d := newDecoder(body, limits)
	d.document(append(scheduleMembers(&p, optional, optional, required), member{"paused", optional, set(&r.Schedule.Paused, readBool)}))
	if d.err != nil {
		return job.ScheduleRequest{}, d.result()
	}
	p.Apply(&r.Schedule)
	if p.Job != nil {
		r.Job, r.Warnings = *p.Job, p.Job.Warnings
	}
	r.Violations, r.Unlisted, r.Malformed = d.request()
	return r, nil
}

// SchedulePatch reads the body of a change of a schedule: a JSON merge patch (RFC 7396),
// in which null removes what a schedule need not have.
func SchedulePatch(body []byte, limits Limits) (p job.SchedulePatch, err error) {
	d := newDecoder(body, limits)
	d.mergePatch(scheduleMembers(&p, removable, kept, kept))
	if d.err != nil {
		return job.SchedulePatch{}, d.result()
	}
	p.Times = p.Cron != nil || p.TimeZone != nil || p.Interval != nil || p.Jitter != nil || p.StartAt != nil || p.EndAt != nil
	p.Violations, p.Unlisted, p.Malformed = d.request()
	return p, nil
}

// scheduleMembers are those of a schedule and of a change of one: what a schedule need not have, what
// it always has, and the job. What the body has is set in the patch.
func scheduleMembers(p *job.SchedulePatch, free, fixed, itsJob need) []member {
	return []member{
		{"name", free, patch(&p.Name, word(isScheduleName, scheduleNameForm))},
		{"cron", free, patch(&p.Cron, word(isCron, cronForm))},
		{"time_zone", free, patch(&p.TimeZone, word(isZone, "This must be a time zone of the IANA database, such as Europe/Berlin or UTC."))},
		{"interval", free, patch(&p.Interval, milliseconds(job.MinInterval, job.MaxInterval))},
		{"jitter", free, patch(&p.Jitter, milliseconds(0, job.MaxScheduleJitter))},
		{"start_at", free, patch(&p.StartAt, pointer(readTime))},
		{"end_at", free, patch(&p.EndAt, pointer(readTime))},
		{"overlap", fixed, set(&p.Overlap, pointer(choice("overlap policy", job.Overlaps)))},
		{"catch_up", fixed, set(&p.CatchUp, pointer(choice("catch-up policy", job.CatchUps)))},
		{"catch_up_max", fixed, set(&p.CatchUpMax, pointer(integer(1, job.MaxCatchUp)))},
		{"job", itsJob, set(&p.Job, readScheduledJob)},
	}
}

// readScheduledJob reads the request for the job of each run: that of a submission, but for what
// the schedule says itself.
func readScheduledJob(d *decoder) (*job.Request, bool) {
	var s submission
	members := append(s.members(), member{keyName, hidden,
		refuse("The runs of a schedule have no idempotency key: each due time has one job.")})
	for i, m := range members {
		if m.name == "execution_at" {
			members[i] = member{m.name, hidden, refuse("The schedule says when its jobs run.")}
		}
	}
	ok := d.object(members)
	s.complete(d)
	for i, w := range s.req.Warnings {
		s.req.Warnings[i].Pointer = "/job" + w.Pointer
	}
	return &s.req, ok
}

var scheduleNameForm = fmt.Sprintf("The name must be a line of at most %d characters.", job.MaxScheduleName)

func isScheduleName(text string) bool { return isLine(text, job.MaxScheduleName) }

const cronForm = "This must be a cron expression of five fields (minute, hour, day of the month, month, day of the week), or six with " +
	`seconds before them, such as "30 4 * * MON-FRI". The time zone is a member of its own, and names such as @daily are not known.`

func isCron(text string) bool {
	_, err := timetable.ParseCron(text)
	return err == nil
}

func isZone(text string) bool {
	_, err := timetable.Zone(text)
	return err == nil && text != ""
}

// milliseconds is for durations in whole milliseconds within bounds.
func milliseconds(least, most time.Duration) value[time.Duration] {
	form := fmt.Sprintf(`This must be a duration in whole milliseconds from "%s" to "%s", such as "90s" or "1h30m".`, least, shortHours(most))
	return func(d *decoder) (time.Duration, bool) {
		length, ok := span(least, most, form)(d)
		if length%time.Millisecond != 0 {
			d.invalid(form)
			return 0, false
		}
		return length, ok
	}
}

// shortHours writes whole hours without the minutes that Go adds.
func shortHours(d time.Duration) string { return strings.TrimSuffix(d.String(), "0m0s") }
