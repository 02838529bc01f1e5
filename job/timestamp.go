package job

import (
	"errors"
	"regexp"
	"time"
)

// ErrBadTime is returned by ParseTime.
var ErrBadTime = errors.New("not an RFC 3339 timestamp in UTC, such as 2030-01-31T12:00:00Z")

var timeForm = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|\+00:00)$`)

// ParseTime reads a timestamp of the API: RFC 3339 in UTC, "Z" or "+00:00", up
// to nanoseconds. Storage keeps microseconds, so a finer time is rounded up:
// what must not happen before t does not happen before the result either.
func ParseTime(s string) (time.Time, error) {
	if !timeForm.MatchString(s) {
		return time.Time{}, ErrBadTime
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, ErrBadTime
	}
	t = t.UTC()
	if down := t.Truncate(time.Microsecond); down.Before(t) {
		t = down.Add(time.Microsecond)
	}
	if t.Year() > 9999 { // rounded up beyond what RFC 3339 can write
		return time.Time{}, ErrBadTime
	}
	return t, nil
}
