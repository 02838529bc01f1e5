package pg

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
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// MaxFlushItems and the other constants limit the flushes and the queue of a Batcher.
const (
	MaxFlushItems = 128     // items of one flush
	maxFlushBytes = 4 << 20 // bytes of one flush
	maxQueued     = 16384   // items that wait for a flush

	// Flushers is how many flushes may be in flight. A second flush starts if a full batch waits, or if the first flush takes longer than
	// slowFlushThreshold.
	Flushers           = 2
	slowFlushThreshold = 25 * time.Millisecond

	// After the first lock timeout in a batch, each further lock timeout is 1/LockedRowFraction of the statement timeout. So the flush has
	// time for about 80 more locked rows.
	LockedRowFraction = 100
)

// Conn is a destination of statements: a pool, a connection or a transaction.
type Conn interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Operation has the name used in metrics and the name of the caller's span.
type Operation struct{ Name, Span string }

var (
	errClosed = &job.Error{Code: job.CodeStorageUnavailable, Detail: "The server is shutting down.", RetryAfter: RetryAfter}
	errFull   = &job.Error{Code: job.CodeStorageUnavailable, Detail: "Too many writes wait for the database.", RetryAfter: RetryAfter}
)

// Batcher implements group commit: callers that wait at the same moment share one statement. There is no timer: items queued during a flush
// go into the next flush. A bad item fails alone. Items with the same key never share a flush, because a single UPDATE ... FROM would apply
// only one of these items.
//
// If a caller's context ends while its item is queued, nothing is written. The caller gets an ordinary error. If the context ends later,
// the outcome is unknown and the caller gets errUnknown.
//
// Each traced caller has a span for its wait. A flush's spans are children of the first caller's span. The spans of the other callers link
// to the first caller's span.
type Batcher[T, R any] struct {
	name      string
	db        *DB
	flush     func(ctx context.Context, db Conn, items []T) ([]Answer[R], error)
	key       func(T) string // "" for no key
	size      func(T) int    // in bytes; may be nil
	Operation func(T) Operation
	slow      time.Duration

	Prepare func()                                   // called before a batch is taken; may be nil
	Begin   func(batch []*Waiter[T, R]) (end func()) // called with each batch, in the order in which batches are taken; may be nil

	mu       sync.Mutex
	ready    sync.Cond
	queue    []*Waiter[T, R]
	inFlight map[string]bool
	quick    int // number of running flushes that have not become slow yet
	closed   bool
	done     sync.WaitGroup
}

// Answer is the result of one item.
type Answer[R any] struct {
	Value R
	Err   error
}

// Waiter is an item, and the caller that waits for its answer.
type Waiter[T, R any] struct {
	Item   T
	key    string
	span   trace.Span
	answer chan Answer[R]
	Got    Answer[R] // set before Batcher calls `end` (see Begin)
}

// NewBatcher makes a batcher for one operation. DB.Start starts it.
func NewBatcher[T, R any](name string, d *DB, flush func(context.Context, Conn, []T) ([]Answer[R], error),
	key func(T) string, size func(T) int) *Batcher[T, R] {
	same := Operation{name, telemetry.SpanCommit + name}
	b := &Batcher[T, R]{
		name: name, db: d, flush: flush, key: key, size: size, Operation: func(T) Operation { return same },
		slow: slowFlushThreshold, inFlight: map[string]bool{},
	}
	b.ready.L = &b.mu
	return b
}

func (b *Batcher[T, R]) start() {
	b.done.Add(Flushers)
	for range Flushers {
		go b.run()
	}
}

// Do queues one item and waits for its answer. In a shared transaction (see Share), Do writes the item immediately, without the queue.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	if sharedTxOf(ctx) != nil {
		answers, err := b.DoAll(ctx, []T{item})
		if err != nil {
			return *new(R), err
		}
		return answers[0].Value, answers[0].Err
	}
	ctx, span := telemetry.Start(ctx, b.Operation(item).Span)
	value, err := b.await(ctx, &Waiter[T, R]{Item: item, key: b.key(item), span: span, answer: make(chan Answer[R], 1)})
	telemetry.End(span, trouble(err))
	return value, err
}

// trouble returns nil for errors that a span should not show: a stale claim or a refused request.
func trouble(err error) error {
	if err == nil || errors.Is(err, job.ErrStale) || job.CodeOf(err).Spec().Status < http.StatusInternalServerError {
		return nil
	}
	return err
}

func (b *Batcher[T, R]) await(ctx context.Context, w *Waiter[T, R]) (R, error) {
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
		return a.Value, a.Err
	case <-ctx.Done():
	}
	if b.withdraw(w) {
		return none, Translate(ctx.Err())
	}
	select { // the answer may have come at the same time as the cancellation
	case a := <-w.answer:
		return a.Value, a.Err
	default:
	}
	return none, errUnknown(context.Cause(ctx))
}

func errUnknown(cause error) error {
	return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: RetryAfter, Cause: cause,
		Detail: "The outcome of the write is unknown. Repeat the request with the same idempotency key to learn it."}
}

func (b *Batcher[T, R]) waiting() (name string, items int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.name, len(b.queue)
}

// withdraw removes w from the queue. It returns false if w is already in a flush.
func (b *Batcher[T, R]) withdraw(w *Waiter[T, R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, w)
	if i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	}
	return i >= 0
}

// stop flushes all queued items. It may be called twice.
func (b *Batcher[T, R]) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ready.Broadcast()
	b.done.Wait()
}

func (b *Batcher[T, R]) run() {
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

// endQuick lets the next flush begin. It is called when a flush returns, or earlier if the flush is slow, for instance because of a locked
// row.
func (b *Batcher[T, R]) endQuick() {
	b.mu.Lock()
	b.quick--
	b.mu.Unlock()
	b.ready.Broadcast()
}

// take waits for the next batch. It returns nil once the Batcher is closed and empty. An item stays queued while another item with the
// same key is being flushed.
func (b *Batcher[T, R]) take() (batch []*Waiter[T, R], end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		// A batch that is not full waits for the running flush. Meanwhile more items can join the batch.
		if b.quick == 0 || len(b.queue) >= MaxFlushItems {
			b.beReady()
			if batch = b.gather(); len(batch) > 0 {
				b.quick++
				if b.Begin != nil {
					end = b.Begin(batch)
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

// beReady prepares a flush. It unlocks b.mu while Prepare runs.
func (b *Batcher[T, R]) beReady() {
	if b.Prepare != nil && len(b.queue) > 0 {
		b.mu.Unlock()
		defer b.mu.Lock()
		b.Prepare()
	}
}

func (b *Batcher[T, R]) gather() []*Waiter[T, R] {
	var batch, left []*Waiter[T, R]
	bytes := 0
	for i, w := range b.queue {
		if len(batch) == MaxFlushItems || (bytes >= maxFlushBytes && len(batch) > 0) {
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
			bytes += b.size(w.Item)
		}
		batch = append(batch, w)
	}
	b.queue = left
	return batch
}

func (b *Batcher[T, R]) release(batch []*Waiter[T, R]) {
	b.mu.Lock()
	for _, w := range batch {
		delete(b.inFlight, w.key)
	}
	b.mu.Unlock()
	b.ready.Broadcast()
}

// DoAll is like Do for many items, which may go into several flushes. Each item has its own answer and error. In a shared transaction (see
// Share), one statement writes all items. If this statement fails, DoAll itself returns the error.
func (b *Batcher[T, R]) DoAll(ctx context.Context, items []T) ([]Answer[R], error) {
	if tx := sharedTxOf(ctx); tx != nil {
		ctx, cancel := b.db.Bound(ctx)
		defer cancel()
		answers, err := b.flush(ctx, tx, items)
		if err != nil {
			return nil, b.db.Failed(b.name, err)
		}
		return answers, nil
	}
	answers := make([]Answer[R], len(items))
	var all errgroup.Group
	all.SetLimit(MaxFlushItems)
	for i, item := range items {
		all.Go(func() error {
			answers[i].Value, answers[i].Err = b.Do(ctx, item)
			return nil
		})
	}
	return answers, all.Wait()
}

type flusher interface {
	start()
	stop()
	waiting() (name string, items int)
}
