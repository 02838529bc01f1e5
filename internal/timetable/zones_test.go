package timetable_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

var (
	countFrom  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	countUntil = time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)
)

const minutesAround = 2 * 24 * 60 // local time differs from UTC by less than this

// oracleExpressions have a simple second implementation: a minute is due if the local time matches.
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

// The first `sparse` oracleExpressions are due at most twice a day.
const sparse = 10

// For speed, expressions that are due more than twice a day are compared only within a day of each clock change.
func TestEveryZone(t *testing.T) {
	t.Parallel()
	count := int(countUntil.Sub(countFrom) / time.Minute)
	matches := make([]uint16, count+2*minutesAround) // bit n of matches[m]: expression n is due at local minute m
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
					offsets[m] = offsets[m-1] // offsets change only at full quarters of an hour
					continue
				}
				_, seconds := countFrom.Add(time.Duration(m) * time.Minute).In(zone).Zone()
				if seconds%60 != 0 {
					t.Fatalf("at minute %d the offset has seconds", m)
				}
				if offsets[m] = int16(seconds / 60); m > 0 && offsets[m] != offsets[m-1] {
					changes = append(changes, m)
				}
			}
			compareDue(t, name, offsets, matches, 0, sparse, 0, count)
			for _, change := range changes {
				compareDue(t, name, offsets, matches, sparse, len(oracleExpressions), max(0, change-24*60), min(count, change+24*60))
			}
		})
	}
}

func compareDue(t *testing.T, zone string, offsets []int16, matches []uint16, first, last, from, until int) {
	t.Helper()
	at := func(m int) time.Time { return countFrom.Add(time.Duration(m) * time.Minute) }
	var schedules [16]*timetable.Times
	var next [16]int // minute of the next due time; `until` if there is none, or if it is not a whole minute
	after := func(n int, moment time.Time) {
		due, ok := schedules[n].After(moment)
		if next[n] = int(due.Sub(countFrom) / time.Minute); !ok || !due.Equal(at(next[n])) {
			next[n] = until
		}
	}
	for n := first; n < last; n++ {
		var err error
		schedules[n], err = timetable.New(job.Timetable{Cron: oracleExpressions[n].cron, TimeZone: zone}, countFrom)
		require.NoError(t, err)
		after(n, at(from).Add(-1))
	}
	asked := uint16(1<<last - 1<<first)
	soonest := slices.Min(next[first:last])
	for m := from; m < until; m++ {
		bits := matches[m+int(offsets[m])+minutesAround] & asked
		if bits == 0 && m < soonest {
			continue
		}
		for n := first; n < last; n++ {
			due := bits&(1<<n) != 0
			if due != (next[n] == m) {
				t.Fatalf("%q in %s: at %s (local %s) due is %t, the next due time is %s", oracleExpressions[n].cron, zone,
					at(m).Format(time.RFC3339), at(m).Add(time.Duration(offsets[m])*time.Minute).Format("Mon 15:04"), due,
					at(next[n]).Format(time.RFC3339))
			}
			if due {
				after(n, at(m))
			}
		}
		soonest = slices.Min(next[first:last])
	}
}
