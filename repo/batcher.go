package repo

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Bounds of one flush.
const (
	maxFlushItems = 128
	maxFlushBytes = 4 << 20
	maxQueued     = 16384

	// flushers is how many flushes may be in flight. The second one begins when
	// batchThreshold items wait, or when the first has taken longer than
	// slowFlushThreshold.
	flushers           = 2
	batchThreshold     = 24
	slowFlushThreshold = 25 * time.Millisecond

	// lockedRowFraction is the fraction of the statement timeout for which a batch
	// that met a locked row waits for further ones. It leaves time for some 80 waits.
	lockedRowFraction = 100
)

// conn is what statements are sent to: a pool, a connection or a transaction.
type conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// operation names what is done with an item: in metrics, and the span of its caller.
type operation struct{ name, span string }

var (
	errClosed = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The server is shutting down.", RetryAfter: retryAfter}
	errFull   = &job.Error{Code: job.CodeStorageUnavailable, Detail: "Too many writes wait for the database.", RetryAfter: retryAfter}
)

// batcher is group commit: the callers that wait at the same moment share one
// statement. There is no timer: what is queued when a flush returns goes into
// the next one. One bad item fails alone. Two items with the same key never
// share a flush: UPDATE ... FROM would silently keep one of them.
//
// A caller whose context ends before its item was taken gets a plain refusal:
// nothing was written. One that is canceled later cannot know its outcome and
// gets errUnknown.
//
// Each caller that is traced has a span of its wait. What the flush itself does
// is below that of the first of them; the others' spans have a link to it.
type batcher[T, R any] struct {
	name      string
	store     *Store
	flush     func(ctx context.Context, db conn, items []T) ([]answer[R], error)
	key       func(T) string // "" for none
	size      func(T) int    // nil: items weigh nothing
	operation func(T) operation
	slow      time.Duration // after which a flush is slow

	prepare func()                                   // called before a batch is taken, or nil
	begin   func(batch []*waiter[T, R]) (end func()) // called with each batch, in the order of taking, or nil

	mu       sync.Mutex
	ready    sync.Cond
	queue    []*waiter[T, R]
	inFlight map[string]bool // keys of items that are being flushed
	quick    int             // flushes in flight that are not slow
	closed   bool
	done     sync.WaitGroup
}

// answer is the result of one item.
type answer[R any] struct {
	value R
	err   error
}

type waiter[T, R any] struct {
	item   T
	key    string
	span   trace.Span
	answer chan answer[R]
	got    answer[R] // the same, for the flusher
}

// newBatcher makes a batcher of items with which the same is done. It begins with start.
func newBatcher[T, R any](name string, s *Store, flush func(context.Context, conn, []T) ([]answer[R], error),
	key func(T) string, size func(T) int) *batcher[T, R] {
	same := operation{name, telemetry.SpanCommit + name}
	b := &batcher[T, R]{
		name: name, store: s, flush: flush, key: key, size: size, operation: func(T) operation { return same },
		slow: slowFlushThreshold, inFlight: map[string]bool{},
	}
	b.ready.L = &b.mu
	return b
}

func (b *batcher[T, R]) start() {
	b.done.Add(flushers)
	for range flushers {
		go b.run()
	}
}

// do queues one item and waits for its answer. Within Once it is written in that
// transaction, with no others.
func (b *batcher[T, R]) do(ctx context.Context, item T) (R, error) {
	if onceTx(ctx) != nil {
		answers, err := b.doAll(ctx, []T{item})
		if err != nil {
			return *new(R), err
		}
		return answers[0].value, answers[0].err
	}
	ctx, span := telemetry.Start(ctx, b.operation(item).span)
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

// errUnknown is for writes that may have been committed or not.
func errUnknown(cause error) error {
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: retryAfter, Cause: cause,
		Detail: "The outcome of the write is unknown. Repeat the request with the same idempotency key to learn it."}
}

// withdraw takes w back if no flusher has it yet.
func (b *batcher[T, R]) withdraw(w *waiter[T, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, w)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return i >= 0
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
		batch, end := b.take()
		if batch == nil {
			return
		}
		slow := time.AfterFunc(b.slow, b.endQuick)
		b.completeAll(batch)
		if end != nil {
			end()
		}
		b.release(batch)
		if slow.Stop() {
			b.endQuick()
		}
	}
}

// endQuick lets the next flush begin, once for each: when the flush has returned,
// or earlier when it is slow, because of a locked row for instance.
func (b *batcher[T, R]) endQuick() {
	b.mu.Lock()
	b.quick--
	b.mu.Unlock()
	b.ready.Broadcast()
}

// take waits for items and takes as many as one flush may hold; nil when the
// batcher is closed and empty. Items whose key is in flight stay queued.
func (b *batcher[T, R]) take() (batch []*waiter[T, R], end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		// A few items do better to wait for the flush that is in flight: together
		// with those that come meanwhile they cost one commit instead of two.
		if b.quick == 0 || len(b.queue) >= batchThreshold {
			b.beReady()
			if batch = b.gather(); len(batch) > 0 {
				b.quick++
				if b.begin != nil {
					end = b.begin(batch)
				}
				return batch, end
			}
		}
		if b.closed && len(b.queue) == 0 {
			return nil, nil
		}
		b.ready.Wait()
	}
}

// beReady prepares a flush, without the lock that the caller holds.
func (b *batcher[T, R]) beReady() {
	if b.prepare != nil && len(b.queue) > 0 {
		b.mu.Unlock()
		defer b.mu.Lock()
		b.prepare()
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
		if w.key != "" && b.inFlight[w.key] {
			left = append(left, w)
			continue
		}
		if w.key != "" {
			b.inFlight[w.key] = true
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
		delete(b.inFlight, w.key)
	}
	b.mu.Unlock()
	b.ready.Broadcast()
}
