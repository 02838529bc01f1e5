package queue

import (
	"bytes"
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func newEntries(n, size int) []job.StreamEntry {
	entries := make([]job.StreamEntry, n)
	for i := range entries {
		entries[i] = job.StreamEntry{
			Key: redistest.Task().JobID.String(), ContentType: "application/json", Value: bytes.Repeat([]byte{byte(i)}, size),
		}
		if i%2 == 1 {
			entries[i].Language = "en"
		}
	}
	return entries
}

func streamOf(t testing.TB, r *redisconn.Redis) (entries []job.StreamEntry) {
	t.Helper()
	for _, m := range redistest.Must(r.Client.XRange(context.Background(), "outcomes", "-", "+").Result())(t) {
		language, named := m.Values["content-language"].(string)
		require.Equal(t, named, language != "", "the language field is never empty")
		entries = append(entries, job.StreamEntry{
			Key: m.Values["key"].(string), ContentType: m.Values["content-type"].(string), Language: language,
			Value: []byte(m.Values["value"].(string)),
		})
	}
	return entries
}

func appended(t *testing.T, q *Queue, maxLen int64, entries []job.StreamEntry) error {
	t.Helper()
	_, _, err := q.AppendOutcomes(t.Context(), "outcomes", maxLen, entries)
	return err
}

func TestAppendOutcomes(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	q := New(r, Config{})
	require.NoError(t, appended(t, q, 10, nil))
	entries := newEntries(2*maxAppend+7, 3) // includes bytes that are not valid text
	require.NoError(t, appended(t, q, 0, entries))
	require.NoError(t, appended(t, q, 1_000_000, entries))
	require.Equal(t, append(entries, entries...), streamOf(t, r), "entries are in order and not trimmed")
	last := redistest.Must(q.LastOutcome(t.Context(), "outcomes"))(t)
	before, after, err := q.AppendOutcomes(t.Context(), "outcomes", 0, newEntries(maxAppend+1, 1))
	require.NoError(t, err)
	require.Equal(t, last, before)
	require.Equal(t, redistest.Must(q.LastOutcome(t.Context(), "outcomes"))(t), after)
	require.NoError(t, r.Client.Del(t.Context(), "outcomes").Err())
	require.Empty(t, redistest.Must(q.LastOutcome(t.Context(), "outcomes"))(t))
}

func TestOutcomesAreTrimmed(t *testing.T) {
	t.Parallel()
	r := redistest.DB(t)
	q := New(r, Config{})
	entries := newEntries(5000, 10)
	require.NoError(t, appended(t, q, 1000, entries))
	kept := streamOf(t, r)
	require.GreaterOrEqual(t, len(kept), 1000)
	require.Less(t, len(kept), 1000+200, "trimming removes whole blocks")
	require.Equal(t, entries[5000-len(kept):], kept)
}

func TestOutcomesNeedAStream(t *testing.T) {
	t.Parallel()
	r := redistest.Mini(t)
	require.NoError(t, r.Client.Set(t.Context(), "outcomes", "x", 0).Err())
	err := appended(t, New(r, Config{}), 10, newEntries(3, 1))
	require.ErrorContains(t, err, `the Redis key "outcomes" holds a value that is not a stream: WRONGTYPE`)
	require.Equal(t, 1., testutil.ToFloat64(r.Metrics.Errors.WithLabelValues("append")))
}

func TestPortionsAreBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, portion(newEntries(1, 0)))
	require.Equal(t, maxAppend, portion(newEntries(maxAppend+1, 1)))
	require.Equal(t, 4, portion(newEntries(10, maxAppendBytes/4)))
	require.Equal(t, 1, portion(newEntries(2, 3*maxAppendBytes)))
}
