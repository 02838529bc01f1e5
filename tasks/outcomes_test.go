package tasks

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// newEntries are entries with values of so many bytes.
func newEntries(n, size int) []job.StreamEntry {
	entries := make([]job.StreamEntry, n)
	for i := range entries {
		entries[i] = job.StreamEntry{
			Key: newTask().JobID.String(), ContentType: "application/json", Value: bytes.Repeat([]byte{byte(i)}, size),
		}
	}
	return entries
}

// streamOf reads a whole stream.
func streamOf(t testing.TB, r *Redis, stream string) []job.StreamEntry {
	t.Helper()
	messages, err := r.client.XRange(context.Background(), stream, "-", "+").Result()
	require.NoError(t, err)
	entries := []job.StreamEntry{}
	for _, m := range messages {
		require.Len(t, m.Values, 3)
		entries = append(entries, job.StreamEntry{
			Key: m.Values["key"].(string), ContentType: m.Values["content-type"].(string), Value: []byte(m.Values["value"].(string)),
		})
	}
	return entries
}

func TestAppendOutcomes(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 10, nil))
	require.Empty(t, streamOf(t, r, "outcomes"))
	entries := newEntries(2*maxAppend+7, 3) // bytes that are no text, too
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 0, entries))
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 1_000_000, entries))
	require.Equal(t, append(entries, entries...), streamOf(t, r, "outcomes"), "in order, and not trimmed")
}

func TestOutcomesAreTrimmed(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	q := NewQueue(r, QueueConfig{})
	entries := newEntries(5000, 10)
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 1000, entries))
	kept := streamOf(t, r, "outcomes")
	require.GreaterOrEqual(t, len(kept), 1000)
	require.Less(t, len(kept), 1000+200, "whole blocks, of a hundred entries by default")
	require.Equal(t, entries[5000-len(kept):], kept)
}

func TestOutcomesNeedAStream(t *testing.T) {
	t.Parallel()
	r := newDB(t)
	require.NoError(t, r.client.Set(t.Context(), "outcomes", "x", 0).Err())
	err := NewQueue(r, QueueConfig{}).AppendOutcomes(t.Context(), "outcomes", 10, newEntries(3, 1))
	require.ErrorContains(t, err, `the key "outcomes" is in use and holds no stream: WRONGTYPE`)
	require.Equal(t, 1., value(r.metrics.errors.WithLabelValues("append")))
}

func TestOutcomesWithoutPermission(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		forbid   []any
		password string
		want     string
	}{
		"command forbidden": {[]any{"ACL", "SETUSER", "default", "-xadd"}, "", "NOPERM"},
		"key forbidden":     {[]any{"ACL", "SETUSER", "default", "resetkeys", "~asynq:*"}, "", "NOPERM"},
		"wrong password":    {[]any{"CONFIG", "SET", "requirepass", "secret"}, ":wrong@", "WRONGPASS"},
		// Redis may hang up on a stranger who sends more than a few words.
		"no password": {[]any{"CONFIG", "SET", "requirepass", "secret"}, "", "append"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			require.NoError(t, connect(t, server.URL()).client.Do(t.Context(), test.forbid...).Err())
			r := connect(t, strings.Replace(server.URL(), "redis://", "redis://"+test.password, 1))
			err := NewQueue(r, QueueConfig{}).AppendOutcomes(t.Context(), "outcomes", 10, newEntries(3, 1))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestOutcomesWhileRedisIsOutOfMemory(t *testing.T) {
	t.Parallel()
	r := connect(t, ownRedis(t).URL())
	q := NewQueue(r, QueueConfig{})
	entries := newEntries(3, 1)
	require.NoError(t, r.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, q.AppendOutcomes(t.Context(), "outcomes", 10, entries), "OOM")
	require.NoError(t, r.client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, q.AppendOutcomes(t.Context(), "outcomes", 10, entries))
	require.Equal(t, entries, streamOf(t, r, "outcomes"))
}

func TestPortionsAreBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, portion(newEntries(1, 0)))
	require.Equal(t, maxAppend, portion(newEntries(maxAppend+1, 1)))
	require.Equal(t, 4, portion(newEntries(10, maxAppendBytes/4)))
	require.Equal(t, 1, portion(newEntries(2, 3*maxAppendBytes)))
}
