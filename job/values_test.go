package job_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const idText = "01890a5d-ac96-774b-bcce-b302099a8057"

var badIDs = []string{
	"", "x", "null",
	strings.ReplaceAll(idText, "-", ""),
	"{" + idText + "}",
	"urn:uuid:" + idText,
	idText + " ", " " + idText, idText + "\x00", idText[:35], idText + "0", idText + "00",
	"01890a5dac96-774b-bcce-b302099a8057-",
	"01890a5d-ac96-774b-bcce_b302099a8057",
	"01890a5d-ac96-774b-bcceb-302099a8057",
	"g1890a5d-ac96-774b-bcce-b302099a8057",
	"+1890a5d-ac96-774b-bcce-b302099a8057",
	"01890a5d-ac96-774b-bcce-b302099a80é",
	"------------------------------------",
}

func FuzzParseID(f *testing.F) {
	f.Add(idText)
	f.Add(strings.ToUpper(idText))
	for _, s := range badIDs {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := job.ParseID(s)
		if err != nil {
			require.ErrorIs(t, err, job.ErrBadID)
			require.True(t, id.IsZero())
			return
		}
		require.Equal(t, strings.ToLower(s), id.String())
	})
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

var goodTimes = map[string]time.Time{
	"2030-01-31T12:00:00Z":               time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC),
	"2030-01-31T12:00:00+00:00":          time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC),
	"2030-01-31T12:00:00.5Z":             time.Date(2030, 1, 31, 12, 0, 0, 500_000_000, time.UTC),
	"2030-01-31T12:00:00.123456Z":        time.Date(2030, 1, 31, 12, 0, 0, 123_456_000, time.UTC),
	"2030-01-31T12:00:00.123456001Z":     time.Date(2030, 1, 31, 12, 0, 0, 123_457_000, time.UTC),
	"2030-12-31T23:59:59.9999999Z":       time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC),
	"1969-12-31T23:59:59.9999991Z":       time.Unix(0, 0).UTC(),
	"2028-02-29T00:00:00Z":               time.Date(2028, 2, 29, 0, 0, 0, 0, time.UTC),
	"0001-01-01T00:00:00Z":               {},
	"0000-01-01T00:00:00.0000005Z":       time.Date(0, 1, 1, 0, 0, 0, 1_000, time.UTC),
	"9999-12-31T23:59:59.999999Z":        time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	"2030-01-31t12:00:00.5z":             time.Date(2030, 1, 31, 12, 0, 0, 500_000_000, time.UTC),
	"9999-12-31T23:59:59.9999999Z":       time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	"2030-01-31T23:00:00.00000100+00:00": time.Date(2030, 1, 31, 23, 0, 0, 1_000, time.UTC),
}

var badTimes = []string{
	"", "now", "1896091200", "2030", "2030-01-31", "2030-01-31T12:00Z", "2030-01-31T12:00:00",
	"2030-01-31 12:00:00Z", "2030-01-31_12:00:00Z", "2030-01-31T12:00:00y",
	"2030-01-31T12:00:00+01:00", "2030-01-31T12:00:00-00:00", "2030-01-31T12:00:00+0000",
	"2030-01-31T12:00:00+00", "2030-01-31T12:00:00+00:01", "2030-01-31T12:00:00 Z",
	"2030-01-31T12:00:00.Z", "2030-01-31T12:00:00,5Z", "2030-01-31T12:00:00.1234567890Z",
	"2030-02-30T12:00:00Z", "2029-02-29T12:00:00Z", "2030-13-01T12:00:00Z", "2030-00-01T12:00:00Z",
	"2030-01-00T12:00:00Z", "2030-01-31T24:00:00Z", "2030-01-31T12:60:00Z", "2030-01-31T12:00:60Z",
	"2030-1-31T12:00:00Z", "12030-01-31T12:00:00Z", "-2030-01-31T12:00:00Z",
	" 2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z ", "2030-01-31T12:00:00Z\n", "2030-01-31T12:00:00Z\x00",
	"٢٠٣٠-01-31T12:00:00Z",
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range goodTimes {
		got := must(job.ParseTime(text))(t)
		require.Equal(t, want, got, text)
		require.Equal(t, time.UTC, got.Location(), text)
	}
	for _, text := range badTimes {
		got, err := job.ParseTime(text)
		require.ErrorIs(t, err, job.ErrBadTime, "%q", text)
		require.Zero(t, got, "%q", text)
	}
}

func FuzzParseTime(f *testing.F) {
	for s := range goodTimes {
		f.Add(s)
	}
	for _, s := range badTimes {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := job.ParseTime(s)
		if err != nil {
			require.ErrorIs(t, err, job.ErrBadTime)
			require.Zero(t, got)
			return
		}
		exact := must(time.Parse(time.RFC3339Nano, strings.ToUpper(s)))(t)
		require.Equal(t, time.UTC, got.Location())
		if got.Year() == 9999 && got.Before(exact) {
			exact = exact.Truncate(time.Microsecond)
			require.Equal(t, time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC), got)
		}
		require.False(t, got.Before(exact), "rounded up")
		require.Less(t, got.Sub(exact), time.Microsecond)

		text := must(job.Time(got).MarshalText())(t)
		again := must(job.ParseTime(string(text)))(t)
		require.True(t, got.Equal(again))
	})
}

// Promise: patterns Lifecycle States a
func TestStateGroups(t *testing.T) {
	t.Parallel()
	require.Equal(t, []job.State{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}, job.States)
	for s, want := range map[job.State]struct {
		valid, final, waiting, held bool
	}{
		"CREATED":   {valid: true, waiting: true},
		"QUEUED":    {valid: true, waiting: true},
		"ASSIGNED":  {valid: true, held: true},
		"RUNNING":   {valid: true, held: true},
		"SUCCEEDED": {valid: true, final: true},
		"FAILED":    {valid: true, final: true},
		"CANCELED":  {valid: true, final: true},
		"":          {},
		"Running":   {},
	} {
		require.Equal(t, want.valid, s.Valid(), s)
		require.Equal(t, want.final, s.Final(), s)
		require.Equal(t, want.waiting, s.Waiting(), s)
		require.Equal(t, want.held, s.Held(), s)
	}
}
