package timetable_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/timetable"
	"github.com/forgerun/forgerun/job"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

func times(t *testing.T, table job.Timetable, anchor, after string, n int) (all []string) {
	t.Helper()
	s, err := timetable.New(table, at(anchor))
	require.NoError(t, err)
	for next, ok := s.After(at(after)); ok && len(all) < n; next, ok = s.After(next) {
		require.Equal(t, time.UTC, next.Location())
		all = append(all, next.Format(time.RFC3339Nano))
	}
	return all
}

const epoch = "2026-01-01T00:00:00Z"

func TestCron(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		table job.Timetable
		after string
		want  []string
	}{
		"with seconds": {job.Timetable{Cron: "*/20 * * * * *"}, epoch, []string{"2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"}},
		"not the same": {job.Timetable{Cron: "0 0 * * *"}, epoch, []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"}},
		"zone": {job.Timetable{Cron: "0 9 * * MON", TimeZone: "Asia/Tokyo"}, epoch,
			[]string{"2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z"}},
		"leap day": {job.Timetable{Cron: "0 0 29 2 *"}, epoch, []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"start": {job.Timetable{Cron: "0 0 * * *", StartAt: new(at("2026-02-01T00:00:00Z"))}, epoch,
			[]string{"2026-02-01T00:00:00Z", "2026-02-02T00:00:00Z"}},
		"start in between": {job.Timetable{Cron: "0 0 * * *", StartAt: new(at("2026-02-01T00:00:00.5Z"))}, epoch,
			[]string{"2026-02-02T00:00:00Z", "2026-02-03T00:00:00Z"}},
		"end": {job.Timetable{Cron: "0 0 * * *", EndAt: new(at("2026-01-02T00:00:00Z"))}, epoch,
			[]string{"2026-01-02T00:00:00Z"}},
		"never": {job.Timetable{Cron: "0 0 30 2 *"}, epoch, nil},
	} {
		require.Equal(t, test.want, times(t, test.table, epoch, test.after, 2), name)
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	every := job.Timetable{Interval: 90 * time.Second}
	require.Equal(t, []string{"2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"}, times(t, every, epoch, epoch, 2), "from the creation")
	require.Equal(t, []string{"2026-01-01T00:04:30Z"}, times(t, every, epoch, "2026-01-01T00:03:00.000001Z", 1))
	every.StartAt = new(at("2026-01-01T12:00:00Z"))
	require.Equal(t, []string{"2026-01-01T12:00:00Z", "2026-01-01T12:01:30Z"},
		times(t, every, "2026-01-01T12:00:00Z", epoch, 2), "from its start on")
	every.EndAt = every.StartAt
	require.Equal(t, []string{"2026-01-01T12:00:00Z"}, times(t, every, "2026-01-01T12:00:00Z", epoch, 2))
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, cron := range []string{
		"", "* * * *", "* * * * * * *", "60 * * * *", "@daily", "@every 1s", "TZ=UTC * * * * *", "CRON_TZ=Asia/Tokyo * * * * *", "TZ=0", "TZ=",
		"0 0 L * *", "*/0 * * * *", "1-1000000000000 * * * *", "a * * * *", string(make([]byte, 5000)),
	} {
		_, err := timetable.ParseCron(cron)
		require.Error(t, err, cron)
	}
	for _, zone := range []string{"Local", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe\\Berlin"} {
		_, err := timetable.Zone(zone)
		require.Error(t, err, zone)
	}
}

func TestLastBefore(t *testing.T) {
	t.Parallel()
	for _, table := range []job.Timetable{
		{Cron: "* * * * * *"}, {Cron: "0 0 29 2 *"}, {Interval: time.Second}, {Cron: "* * * 1 1 *"}, {Interval: 100 * time.Hour},
	} {
		s, err := timetable.New(table, at("1990-01-01T00:00:00Z"))
		require.NoError(t, err)
		until := at("2026-05-05T05:05:05Z")
		for _, n := range []int{1, 3} {
			last := s.LastBefore(at("2000-01-01T00:00:00Z"), until, n)
			require.Len(t, last, n)
			require.Equal(t, last, s.Next(last[0], n))
			next, _ := s.After(last[n-1])
			require.True(t, next.After(until) && !last[n-1].After(until))
		}
		require.Empty(t, s.LastBefore(until, until, 10))
		few := s.LastBefore(until.Add(-time.Second), until, 10)
		require.True(t, slices.IsSortedFunc(few, time.Time.Compare) && len(few) <= 1)
	}
}

func FuzzCron(f *testing.F) {
	for _, text := range []string{"* * * * *", "TZ= ", "*/5 1-3 ? * MON#2", "59 59 23 31 12 7", "0-59/0 * * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := timetable.ParseCron(text)
		if err != nil {
			return
		}
		if next := s.Next(at(epoch)); !next.IsZero() && !next.After(at(epoch)) {
			t.Errorf("%q: %s", text, next)
		}
	})
}
