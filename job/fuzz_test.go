package job_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
		exact, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err, "what is accepted is RFC 3339")
		require.Equal(t, time.UTC, got.Location())
		require.False(t, got.Before(exact), "never earlier than what was written")
		require.Less(t, got.Sub(exact), time.Microsecond)

		text, err := job.Time(got).MarshalText()
		require.NoError(t, err)
		again, err := job.ParseTime(string(text))
		require.NoError(t, err, "what is written can be read: %s", text)
		require.True(t, got.Equal(again))
	})
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

// FuzzTransitions walks at random through whatever the rules let through.
func FuzzTransitions(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, "QUEUED", "RUNNING")
	f.Add([]byte{1, 2, 1, 2, 3, 5, 1, 2, 3, 6, 1}, "", "CREATED")
	f.Add([]byte{6, 6, 0, 1, 2, 3, 4, 5}, "PAUSED", "FAILED")
	f.Fuzz(func(t *testing.T, walk []byte, from, to string) {
		at := job.Created
		require.Equal(t, job.EventCreated, job.EventOf("", at))
		for _, b := range walk {
			next := job.States[int(b)%len(job.States)]
			possible := job.CanTransition(at, next) || job.IsLeaseReturn(at, next)
			require.Equal(t, possible, job.EventOf(at, next) != "", "%s -> %s", at, next)
			if !possible {
				continue
			}
			if at.Final() {
				require.Equal(t, [2]job.State{job.Failed, job.Queued}, [2]job.State{at, next}, "only a retry leaves a final state")
			}
			require.NotEqual(t, job.Created, next, "nothing comes back to the start")
			require.NotEqual(t, at, next)
			at = next
		}

		known := slices.Contains(job.States, job.State(to)) && (from == "" || slices.Contains(job.States, job.State(from)))
		if !known {
			require.Empty(t, job.EventOf(job.State(from), job.State(to)))
			require.False(t, job.CanTransition(job.State(from), job.State(to)))
		}
	})
}
