package repo

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Bounds of one flush.
const (
	maxFlushItems = 128
	maxFlushBytes = 4 << 20
	maxQueued     = 16384

	// flushers is how many flushes may be under way. The second one begins when
	// a crowd waits, or when the first is held up.
	flushers    = 2
	crowd       = 24
	heldUpAfter = 25 * time.Millisecond

	// hurriedPart is the part of the statement timeout for which a batch that
	// met a locked row waits for further ones. It leaves time for some 80 waits.
	hurriedPart = 100
)

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

var (
	errClosed = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The server is shutting down.", RetryAfter: retryAfter}
	errFull   = &job.Error{Code: job.CodeStorageUnavailable, Detail: "Too many writes wait for the database.", RetryAfter: retryAfter}
)

// batcher is group commit: the callers that wait at the same moment share one
// statement. Nobody waits on a timer: whatever is queued when a flush returns
// goes into the next one. One bad item fails alone. Two items with the same
// key never share a flush: UPDATE ... FROM would silently keep one of them.
//
// A caller whose context ends before its item was taken gets a plain refusal:
// nothing was written. One that is cancelled later cannot know its outcome and
// gets errUnknown.
//
// Each caller that is traced has a span of its wait. What the flush itself does
// is below that of the first of them; the others' spans have a link to it.
type batcher[T, R any] struct {
	name  string
	span  string // of a caller
	store *Store
	flush func(ctx context.Context, db querier, items []T) ([]answer[R], error)
	key   func(T) string // "" for none
	size  func(T) int    // nil: items weigh nothing
	late  time.Duration  // after which a flush is held up

	mu     sync.Mutex
	ready  sync.Cond
	queue  []*waiter[T, R]
	flying map[string]bool // keys of items that are being flushed
	prompt int             // flushes under way that are not held up
	closed bool
	done   sync.WaitGroup
}

// answer is what became of one item.
type answer[R any] struct {
	value R
	err   error
}

type waiter[T, R any] struct {
	item   T
	key    string
	span   trace.Span
	answer chan answer[R]
}

func newBatcher[T, R any](name string, s *Store, flush func(context.Context, querier, []T) ([]answer[R], error),
	key func(T) string, size func(T) int) *batcher[T, R] {
	b := &batcher[T, R]{name: name, span: telemetry.SpanCommit + name, store: s, flush: flush, key: key, size: size, late: heldUpAfter, flying: map[string]bool{}}
	b.ready.L = &b.mu
	b.done.Add(flushers)
	for range flushers {
		go b.run()
	}
	return b
}

// do hands in one item and waits for what became of it.
func (b *batcher[T, R]) do(ctx context.Context, item T) (R, error) {
	ctx, span := telemetry.Start(ctx, b.span)
	value, err := b.await(ctx, &waiter[T, R]{item: item, key: b.key(item), span: span, answer: make(chan answer[R], 1)})
	telemetry.End(span, trouble(err))
	return value, err
}

// trouble gives an error of the store's own. That a claim is not current, or a
// request cannot be met, is an answer.
func trouble(err error) error {
	if err == nil || errors.Is(err, job.ErrStale) || job.CodeOf(err).Spec().Status < http.StatusInternalServerError {
		return nil
	}
	return err
}

func (b *batcher[T, R]) await(ctx context.Context, w *waiter[T, R]) (R, error) {
	var none R
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return none, errClosed
	case len(b.queue) >= maxQueued:
		b.mu.Unlock()
		return none, errFull
	}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	b.ready.Signal()

	select {
	case a := <-w.answer:
		return a.value, a.err
	case <-ctx.Done():
	}
	if b.withdraw(w) {
		return none, translate(ctx.Err())
	}
	select { // the answer may have come together with the cancellation
	case a := <-w.answer:
		return a.value, a.err
	default:
	}
	return none, errUnknown(context.Cause(ctx))
}

// errUnknown is for writes that may have come about and may not.
func errUnknown(cause error) error {
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: retryAfter, Cause: cause,
		Detail: "The outcome of the write is unknown. Repeat the request with the same idempotency key to learn it."}
}

// withdraw takes w back if no flusher has it yet.
func (b *batcher[T, R]) withdraw(w *waiter[T, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, queued := range b.queue {
		if queued == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			return true
		}
	}
	return false
}

// stop refuses new items, flushes those that wait, and returns when all are
// answered. It may be called twice.
func (b *batcher[T, R]) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
	b.done.Wait()
}

func (b *batcher[T, R]) run() {
	defer b.done.Done()
	for {
		batch := b.take()
		if batch == nil {
			return
		}
		heldUp := time.AfterFunc(b.late, b.pass)
		b.settleAll(batch)
		b.release(batch)
		if heldUp.Stop() {
			b.pass()
		}
	}
}

// pass ends the waiting for a flush, once for each: when it has returned, or
// earlier when it is held up, by a locked row for instance.
func (b *batcher[T, R]) pass() {
	b.mu.Lock()
	b.prompt--
	b.mu.Unlock()
	b.ready.Broadcast()
}

// take waits for items and takes as many as one flush may hold; nil when the
// batcher is closed and empty. Items whose key is in flight stay queued.
func (b *batcher[T, R]) take() []*waiter[T, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		// A few items do better to wait for the flush that is under way: together
		// with those that come meanwhile they cost one commit instead of two.
		if b.prompt == 0 || len(b.queue) >= crowd {
			if batch := b.gather(); len(batch) > 0 {
				b.prompt++
				return batch
			}
		}
		if b.closed && len(b.queue) == 0 {
			return nil
		}
		b.ready.Wait()
	}
}

func (b *batcher[T, R]) gather() []*waiter[T, R] {
	var batch, left []*waiter[T, R]
	bytes := 0
	for i, w := range b.queue {
		if len(batch) == maxFlushItems || (bytes >= maxFlushBytes && len(batch) > 0) {
			left = append(left, b.queue[i:]...)
			break
		}
		if w.key != "" && b.flying[w.key] {
			left = append(left, w)
			continue
		}
		if w.key != "" {
			b.flying[w.key] = true
		}
		if b.size != nil {
			bytes += b.size(w.item)
		}
		batch = append(batch, w)
	}
	b.queue = left
	return batch
}

func (b *batcher[T, R]) release(batch []*waiter[T, R]) {
	b.mu.Lock()
	for _, w := range batch {
		delete(b.flying, w.key)
	}
	b.mu.Unlock()
	b.ready.Broadcast()
}

// settleAll answers each item of a batch exactly once, within the store's own
// limit and not a caller's: one impatient caller must not undo the others'
// writes.
func (b *batcher[T, R]) settleAll(batch []*waiter[T, R]) {
	ctx, cancel := b.store.bound(b.traced(batch))
	defer cancel()
	started := time.Now()
	b.settle(ctx, batch, false)
	b.store.metrics.flushed(ctx, b.name, len(batch), time.Since(started))
}

// traced gives the context of a flush: with the span of the first caller who
// has one, and nothing else of the callers'. One who has left meanwhile has none.
func (b *batcher[T, R]) traced(batch []*waiter[T, R]) context.Context {
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

// settle flushes a batch. One that fails through a row of its own is split
// until that row stands alone. A row that somebody has locked costs the batch
// one lock timeout; from then on it hurries, so that its neighbours do not pay
// the same again at every split.
func (b *batcher[T, R]) settle(ctx context.Context, batch []*waiter[T, R], hurry bool) {
	items := column(batch, func(w *waiter[T, R]) T { return w.item })
	answers, err := b.attempt(ctx, items, hurry)
	if err != nil && isRowsFault(err) && len(batch) > 1 {
		hurry = hurry || hasState(err, stateLockTimeout)
		b.settle(ctx, batch[:len(batch)/2], hurry)
		b.settle(ctx, batch[len(batch)/2:], hurry)
		return
	}
	if err == nil && len(answers) != len(batch) {
		err = errors.New(b.name + ": the flush answered fewer items than it was given")
	}
	if err != nil {
		err = b.store.failed(b.name, err)
	}
	for i, w := range batch {
		if err != nil {
			w.answer <- answer[R]{err: err}
			continue
		}
		w.answer <- answers[i]
	}
}

// deadlockTries bounds how often a batch that lost a deadlock is repeated.
const deadlockTries = 3

func (b *batcher[T, R]) attempt(ctx context.Context, items []T, hurry bool) (answers []answer[R], err error) {
	for range deadlockTries {
		if hurry {
			answers, err = b.hurriedFlush(ctx, items)
		} else {
			answers, err = b.flush(ctx, b.store.pool, items)
		}
		if !hasState(err, stateDeadlock, stateSerialization) {
			break
		}
	}
	return answers, err
}

// hurriedFlush flushes with hardly any patience for locked rows.
func (b *batcher[T, R]) hurriedFlush(ctx context.Context, items []T) (answers []answer[R], err error) {
	err = pgx.BeginFunc(ctx, b.store.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+milliseconds(b.store.cfg.Timeout/hurriedPart))
		if err == nil {
			answers, err = b.flush(ctx, tx, items)
		}
		return err
	})
	return answers, err
}
