package queue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

// Limits of one round trip. A round trip ends with the entry that reaches maxAppendBytes.
const (
	maxAppend      = 500
	maxAppendBytes = 1 << 20
)

// LastOutcome returns the id of the stream's last entry, or "" if there is none.
func (q *Queue) LastOutcome(ctx context.Context, stream string) (last string, err error) {
	entries, err := q.redis.Client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil {
		return "", q.redis.Failed("append", ofStream(stream, err))
	}
	return lastOf(entries), nil
}

// AppendOutcomes appends the entries to the Redis stream in order. If maxLen is not 0, AppendOutcomes trims the stream to about maxLen
// entries. An entry has the fields "key", "content-type" and "value", and "content-language" if the language is known. `before` is the id
// of the entry directly before the new ones, or "" if the stream was empty. `last` is the id of the last new entry. If another process
// appends between two round trips, `before` is the id of the last entry of that process. After an error, some entries may have been
// appended. The caller can then append all entries again. Some entries then appear twice.
func (q *Queue) AppendOutcomes(
	ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry,
) (before, last string, err error) {
	for first := true; len(entries) > 0; first = false {
		n := portion(entries)
		found, appended, err := q.appendEntries(ctx, stream, maxLen, entries[:n])
		if err != nil {
			return "", "", q.redis.Failed("append", ofStream(stream, err))
		}
		if first || found != last {
			before = found
		}
		entries, last = entries[n:], appended
	}
	return before, last, nil
}

func ofStream(stream string, err error) error {
	if isWrongType(err) {
		return fmt.Errorf("the Redis key %q holds a value that is not a stream: %w", stream, err)
	}
	return err
}

func lastOf(entries []redis.XMessage) string {
	if len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}

func portion(entries []job.StreamEntry) int {
	size := 0
	for i, e := range entries {
		size += len(e.Value)
		if i+1 == maxAppend || size >= maxAppendBytes {
			return i + 1
		}
	}
	return len(entries)
}

func (q *Queue) appendEntries(
	ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry,
) (before, last string, err error) {
	var found *redis.XMessageSliceCmd
	var appended *redis.StringCmd
	_, err = q.redis.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		found = p.XRevRangeN(ctx, stream, "+", "-", 1)
		for _, e := range entries {
			values := []any{"key", e.Key, "content-type", e.ContentType}
			if e.Language != "" {
				values = append(values, "content-language", e.Language)
			}
			appended = p.XAdd(ctx, &redis.XAddArgs{Stream: stream, MaxLen: maxLen, Approx: true, Values: append(values, "value", e.Value)})
		}
		return nil
	})
	if err != nil {
		return "", "", err
	}
	return lastOf(found.Val()), appended.Val(), nil
}
