// Package timetable computes the due times of a schedule. Cron expressions have the syntax of robfig/cron. The time zones are embedded in
// the program, so all processes compute the same times.
package timetable

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for machines without a database of time zones

	"github.com/robfig/cron/v3"

	"github.com/forgerun/forgerun/job"
)

// parser reads five fields, or six fields if the first one is for seconds. It rejects names such as @daily and @every.
var parser = cron.NewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// Times are the due times of a schedule.
type Times struct {
	cron     cron.Schedule // nil for a timetable with an interval
	zone     *time.Location
	interval time.Duration
	anchor   time.Time
	from     *time.Time
	until    *time.Time
}

// New returns the due times of a timetable. If the timetable has an interval, the first interval starts at the time `anchor`.
func New(t job.Timetable, anchor time.Time) (*Times, error) {
	times := &Times{interval: t.Interval, anchor: anchor, from: t.StartAt, until: t.EndAt}
	if t.Cron == "" {
		return times, nil
	}
	var err error
	if times.cron, err = ParseCron(t.Cron); err != nil {
		return nil, err
	}
	times.zone, err = Zone(t.TimeZone)
	return times, err
}

// ParseCron reads a cron expression.
func ParseCron(text string) (cron.Schedule, error) {
	if len(text) > job.MaxCronBytes {
		return nil, fmt.Errorf("more than %d bytes", job.MaxCronBytes)
	}
	if strings.Contains(text, "=") { // the parser would accept TZ=
		return nil, fmt.Errorf("the expression must not contain a time zone")
	}
	return parser.Parse(text)
}

var zones sync.Map

// Zone returns a time zone of the IANA database; "" is UTC.
func Zone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if name == "Local" || len(name) > job.MaxTimeZoneBytes {
		return nil, fmt.Errorf("no such time zone")
	}
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	zones.Store(name, zone)
	return zone, nil
}

// After returns the first due time after t; false if there is none.
func (s *Times) After(t time.Time) (time.Time, bool) {
	if s.from != nil && t.Before(*s.from) {
		t = s.from.Add(-1)
	}
	var next time.Time
	if s.cron != nil {
		next = s.afterCron(t)
	} else {
		next = s.afterInterval(t)
	}
	if next.IsZero() || s.until != nil && next.After(*s.until) {
		return time.Time{}, false
	}
	return next, true
}

// afterCron divides time into parts with a constant UTC offset, and calls robfig/cron for each part. This is needed because robfig/cron
// mishandles changes of the offset. If a change makes a day begin at 1:00, robfig/cron skips this day. After a change by half an hour, it
// returns wrong times.
func (s *Times) afterCron(t time.Time) time.Time {
	for lastYear := t.Year() + 5; ; {
		local := t.Add(1).In(s.zone) // the due time is after t, so use the offset just after t
		_, offset := local.Zone()
		_, change := local.ZoneBounds()
		next := s.cron.Next(t.In(time.FixedZone("", offset)))
		switch {
		case change.IsZero() || !next.IsZero() && next.Before(change):
			return next.UTC()
		case change.Year() > lastYear:
			return time.Time{}
		}
		t = change.Add(-1)
	}
}

// If the schedule has a StartAt, the first due time is the anchor. Otherwise it is one interval after the anchor.
func (s *Times) afterInterval(t time.Time) time.Time {
	if t.Before(s.anchor) {
		if s.from != nil {
			return s.anchor
		}
		return s.anchor.Add(s.interval)
	}
	return t.Add(s.interval - t.Sub(s.anchor)%s.interval)
}

// LastBefore returns the last n due times in (after, until], in ascending order. If there are fewer, it returns all of them. LastBefore
// is fast for ranges with very many due times, too.
func (s *Times) LastBefore(after, until time.Time, n int) []time.Time {
	for window := time.Duration(n) * time.Second; ; window *= 2 {
		begin := until.Add(-window)
		whole := !begin.After(after)
		if whole {
			begin = after
		}
		var found []time.Time
		for at, ok := s.After(begin); ok && !at.After(until); at, ok = s.After(at) {
			found = append(found, at)
		}
		if whole || len(found) >= n {
			return found[max(0, len(found)-n):]
		}
	}
}

// Next returns at most n due times, beginning with the given one.
func (s *Times) Next(due time.Time, n int) []time.Time {
	var next []time.Time
	for ok := true; ok && len(next) < n; due, ok = s.After(due) {
		next = append(next, due)
	}
	return next
}
