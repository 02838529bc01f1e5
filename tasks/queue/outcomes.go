package queue

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

// What one round trip appends to a stream: at most so many entries, and no further one after so many bytes.
const (
	maxAppend      = 500
	maxAppendBytes = 1 << 20
)

// AppendOutcomes appends the entries to the Redis stream, in order, and trims it to about maxLen entries (0: not at all). An entry
// has the fields "key", "content-type", "content-language" if its value has texts, and "value". With an error some of the entries
// may have been appended; appending all of them again repeats those and keeps the order.
func (q *Queue) AppendOutcomes(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	for len(entries) > 0 {
		n := portion(entries)
		err := q.appendEntries(ctx, stream, maxLen, entries[:n])
		if isWrongType(err) {
			err = fmt.Errorf("the key %q is in use and holds no stream: %w", stream, err)
		}
		if err != nil {
			return q.redis.Failed("append", err)
		}
		entries = entries[n:]
	}
	return nil
}

// portion is how many of the entries one round trip appends, at least one.
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

func (q *Queue) appendEntries(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) error {
	_, err := q.redis.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, e := range entries {
			values := []any{"key", e.Key, "content-type", e.ContentType}
			if e.Language != "" {
				values = append(values, "content-language", e.Language)
			}
			p.XAdd(ctx, &redis.XAddArgs{Stream: stream, MaxLen: maxLen, Approx: true, Values: append(values, "value", e.Value)})
		}
		return nil
	})
	return err
}
