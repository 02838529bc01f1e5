package pg

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// completeAll answers each item of a batch exactly once. It ignores the timeouts of the callers, because a caller with a short timeout must
// not undo the writes of other callers.
func (b *Batcher[T, R]) completeAll(batch []*Waiter[T, R]) {
	ctx, cancel := b.db.Bound(b.traced(batch))
	defer cancel()
	started := time.Now()
	b.complete(ctx, batch, false)
	took := time.Since(started)
	items := make(map[string]int, 1)
	for _, w := range batch {
		items[b.Operation(w.Item).Name]++
	}
	for name, n := range items {
		b.db.metrics.flushSize.WithLabelValues(name).Observe(float64(n))
		telemetry.Observe(ctx, b.db.metrics.flushDelay.WithLabelValues(name), took)
	}
}

// traced returns a context with the span of the first caller that still waits and is traced.
func (b *Batcher[T, R]) traced(batch []*Waiter[T, R]) context.Context {
	ctx := context.Background()
	var first trace.Span
	for _, w := range batch {
		if !w.span.IsRecording() {
			continue
		}
		w.span.SetAttributes(telemetry.BatchSize.Int(len(batch)))
		if first == nil {
			first = w.span
			ctx = trace.ContextWithSpan(ctx, first)
			continue
		}
		w.span.AddLink(trace.Link{SpanContext: first.SpanContext()})
	}
	return ctx
}

// complete flushes a batch. If the flush fails because of one row, complete splits the batch until this row is alone. After the first
// locked row, complete uses a short lock timeout, because each part of the batch may wait again.
func (b *Batcher[T, R]) complete(ctx context.Context, batch []*Waiter[T, R], shortLocks bool) {
	items := Column(batch, func(w *Waiter[T, R]) T { return w.Item })
	answers, err := b.attempt(ctx, items, shortLocks)
	if err != nil && isRowsFault(err) && len(batch) > 1 {
		shortLocks = shortLocks || HasState(err, StateLockTimeout)
		b.complete(ctx, batch[:len(batch)/2], shortLocks)
		b.complete(ctx, batch[len(batch)/2:], shortLocks)
		return
	}
	if err == nil && len(answers) != len(batch) {
		err = errors.New(b.name + ": the flush returned fewer results than items")
	}
	if err != nil {
		answers = slices.Repeat([]Answer[R]{{Err: b.db.Failed(b.Operation(batch[0].Item).Name, err)}}, len(batch))
	}
	for i, w := range batch {
		w.Got = answers[i]
		w.answer <- answers[i]
	}
}

const deadlockTries = 3

func (b *Batcher[T, R]) attempt(ctx context.Context, items []T, shortLocks bool) (answers []Answer[R], err error) {
	for range deadlockTries {
		if shortLocks {
			answers, err = b.flushWithShortLocks(ctx, items)
		} else {
			answers, err = b.flush(ctx, b.db.Pool, items)
		}
		if !HasState(err, stateDeadlock, stateSerialization) {
			break
		}
	}
	return answers, err
}

func (b *Batcher[T, R]) flushWithShortLocks(ctx context.Context, items []T) (answers []Answer[R], err error) {
	err = pgx.BeginFunc(ctx, b.db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+Milliseconds(b.db.Timeout/LockedRowFraction))
		if err == nil {
			answers, err = b.flush(ctx, tx, items)
		}
		return err
	})
	return answers, err
}
