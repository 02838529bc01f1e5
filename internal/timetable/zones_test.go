package timetable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

// The oracle counts minute by minute: a minute of UTC is a due time if the clock on the wall of the zone shows a local
// time that matches the expression. It shares no code with the package.
var (
	countFrom  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	countUntil = time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)
)

const minutesAround = 2 * 24 * 60 // local times that the table has before countFrom and after countUntil

var oracleExpressions = []struct {
	cron  string
	match func(wall time.Time) bool
}{
	{"0 0 * * *", func(w time.Time) bool { return w.Hour() == 0 && w.Minute() == 0 }},
	{"0 12 * * *", func(w time.Time) bool { return w.Hour() == 12 && w.Minute() == 0 }},
	{"30 2 * * *", func(w time.Time) bool { return w.Hour() == 2 && w.Minute() == 30 }},
	{"15 1,23 * * *", func(w time.Time) bool { return (w.Hour() == 1 || w.Hour() == 23) && w.Minute() == 15 }},
	{"0 0 * * SUN", func(w time.Time) bool { return w.Weekday() == time.Sunday && w.Hour() == 0 && w.Minute() == 0 }},
	{"45 9 * * FRI,SAT,SUN", func(w time.Time) bool {
		return (w.Weekday() >= time.Friday || w.Weekday() == time.Sunday) && w.Hour() == 9 && w.Minute() == 45
	}},
	{"0 0 1 * *", func(w time.Time) bool { return w.Day() == 1 && w.Hour() == 0 && w.Minute() == 0 }},
	{"59 23 28-31 * *", func(w time.Time) bool { return w.Day() >= 28 && w.Hour() == 23 && w.Minute() == 59 }},
	{"0 0 13 * FRI", func(w time.Time) bool {
		return (w.Day() == 13 || w.Weekday() == time.Friday) && w.Hour() == 0 && w.Minute() == 0
	}},
	{"10 0 * 3,4,9-11 *", func(w time.Time) bool {
		m := w.Month()
		return (m == 3 || m == 4 || m >= 9 && m <= 11) && w.Hour() == 0 && w.Minute() == 10
	}},
	{"0 * * * *", func(w time.Time) bool { return w.Minute() == 0 }},
	{"*/30 * * * *", func(w time.Time) bool { return w.Minute()%30 == 0 }},
	{"* * * * *", func(time.Time) bool { return true }},
}

const quarter = 15 // minutes

const sparse = 10 // the first expressions are due at most twice a day; all their due times are compared

// TestEveryZone compares the due times of 2026 to 2028 in time zones with a count of each minute. Expressions that are
// due often are compared in the two days around each change of the clocks.
func TestEveryZone(t *testing.T) {
	t.Parallel()
	count := int(countUntil.Sub(countFrom) / time.Minute)
	matches := make([]uint16, count+2*minutesAround) // by local minute; bit n: expression n matches
	for m := range matches {
		wall := countFrom.Add(time.Duration(m-minutesAround) * time.Minute)
		for n, e := range oracleExpressions {
			if e.match(wall) {
				matches[m] |= 1 << n
			}
		}
	}
	for _, name := range zonesToCount(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := timetable.Zone(name)
			require.NoError(t, err)
			offsets := make([]int16, count) // in minutes
			var changes []int
			for m := range offsets {
				if m%quarter != 0 {
					offsets[m] = offsets[m-1] // clocks change at full quarters of an hour
					continue
				}
				_, seconds := countFrom.Add(time.Duration(m) * time.Minute).In(zone).Zone()
				require.Zero(t, seconds%60)
				if offsets[m] = int16(seconds / 60); m > 0 && offsets[m] != offsets[m-1] {
					changes = append(changes, m)
				}
			}
			for n, e := range oracleExpressions {
				if n < sparse {
					compareDue(t, e.cron, name, offsets, matches, n, 0, count)
					continue
				}
				for _, change := range changes {
					compareDue(t, e.cron, name, offsets, matches, n, max(0, change-24*60), min(count, change+24*60))
				}
			}
		})
	}
}

// compareDue compares the due times of an expression from one minute up to another with the oracle's.
func compareDue(t *testing.T, cron, zone string, offsets []int16, matches []uint16, bit, from, until int) {
	t.Helper()
	s, err := timetable.New(job.Timetable{Cron: cron, TimeZone: zone}, countFrom)
	require.NoError(t, err)
	at := func(m int) time.Time { return countFrom.Add(time.Duration(m) * time.Minute) }
	next, ok := s.After(at(from).Add(-1))
	for m := from; m < until; m++ {
		due := matches[m+int(offsets[m])+minutesAround]&(1<<bit) != 0
		if due != (ok && next.Equal(at(m))) {
			t.Fatalf("%q in %s: at %s (local %s) due is %t, the next due time is %s", cron, zone, at(m).Format(time.RFC3339),
				at(m).Add(time.Duration(offsets[m])*time.Minute).Format("Mon 15:04"), due, next.Format(time.RFC3339))
		}
		if due {
			next, ok = s.After(next)
		}
	}
}
