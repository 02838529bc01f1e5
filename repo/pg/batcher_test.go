package pg

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// These tests use a batcher of strings without a database. Each item is also its key and its result.

type flushOfStrings func(items []string) ([]Answer[string], error)

func testBatcher(t *testing.T, flush flushOfStrings) *Batcher[string, string] {
	t.Helper()
	db := &DB{Timeout: 10 * time.Second, metrics: newMetrics(telemetry.In(nil))}
	b := NewBatcher("test", db, func(_ context.Context, _ Conn, items []string) ([]Answer[string], error) { return flush(items) },
		func(item string) string { return item }, func(item string) int { return len(item) })
	b.start()
	t.Cleanup(b.stop)
	return b
}

func queued[T, R any](b *Batcher[T, R]) int {
	_, n := b.waiting()
	return n
}

func echo(items []string) ([]Answer[string], error) {
	return Column(items, func(s string) Answer[string] { return Answer[string]{Value: s} }), nil
}

type gate struct {
	batches chan []string
	open    chan struct{}
}

func gated(t *testing.T) (*gate, *Batcher[string, string]) {
	t.Parallel()
	g := &gate{make(chan []string, 100), make(chan struct{})}
	return g, testBatcher(t, g.flush)
}

func (g *gate) flush(items []string) ([]Answer[string], error) {
	g.batches <- items
	<-g.open
	return echo(items)
}

func call(ctx context.Context, b *Batcher[string, string], item string) <-chan Answer[string] {
	done := make(chan Answer[string], 1)
	go func() {
		v, err := b.Do(ctx, item)
		done <- Answer[string]{v, err}
	}()
	return done
}

func (g *gate) occupy(ctx context.Context, b *Batcher[string, string]) (calls []<-chan Answer[string]) {
	for _, item := range []string{"x", "y"} {
		calls = append(calls, call(ctx, b, item))
		<-g.batches
	}
	return calls
}

func (b *Batcher[T, R]) awaitQueued(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, "the items are queued", func() bool { return queued(b) == n })
}

func requireAnswers(t *testing.T, calls ...<-chan Answer[string]) {
	t.Helper()
	for _, done := range calls {
		require.NoError(t, (<-done).Err)
	}
}

func TestBatcherGathersItemsDuringAFlush(t *testing.T) {
	g, b := gated(t)
	b.slow = time.Hour
	calls := []<-chan Answer[string]{call(t.Context(), b, "x")}
	require.Equal(t, []string{"x"}, <-g.batches)
	for i := range MaxFlushItems - 1 {
		calls = append(calls, call(t.Context(), b, strconv.Itoa(i)))
		b.awaitQueued(t, i+1)
	}
	require.Empty(t, g.batches)
	g.open <- struct{}{}
	require.Len(t, <-g.batches, MaxFlushItems-1, "all items go into the next flush")

	for i := range MaxFlushItems {
		calls = append(calls, call(t.Context(), b, "another "+strconv.Itoa(i)))
	}
	require.Len(t, <-g.batches, MaxFlushItems, "a full batch does not wait")
	close(g.open)
	requireAnswers(t, calls...)
	requireAnswers(t, call(t.Context(), b, "last"))
	b.stop()
	require.Zero(t, b.quick)
}

func TestBatcherRefusesWhenFull(t *testing.T) {
	t.Parallel()
	// No flusher runs, so the queue stays full.
	b := &Batcher[string, string]{key: func(item string) string { return item }, Operation: func(string) Operation { return Operation{} }}
	b.queue = make([]*Waiter[string, string], maxQueued)
	_, err := b.Do(t.Context(), "late")
	require.ErrorIs(t, err, errFull)
	require.Len(t, b.queue, maxQueued)
}

func TestBatcherBoundsTheTimeOfABatch(t *testing.T) {
	g, b := gated(t)
	var mu sync.Mutex
	limits := map[time.Time]int{}
	b.flush = func(ctx context.Context, _ Conn, items []string) ([]Answer[string], error) {
		limit, _ := ctx.Deadline()
		mu.Lock()
		limits[limit]++
		mu.Unlock()
		_, _ = g.flush(items)
		return nil, pgError("23514")
	}
	began := time.Now()
	g.occupy(t.Context(), b)
	calls := []<-chan Answer[string]{call(t.Context(), b, "a"), call(t.Context(), b, "b"), call(t.Context(), b, "c")}
	b.awaitQueued(t, len(calls))
	close(g.open)
	for _, done := range calls {
		require.Error(t, (<-done).Err)
	}
	b.stop()
	var parts []int
	for limit, n := range limits {
		parts = append(parts, n)
		require.WithinRange(t, limit, began.Add(b.db.Timeout), time.Now().Add(2*b.db.Timeout))
	}
	slices.Sort(parts)
	require.Equal(t, []int{1, 1, 5}, parts, "3, then 1 and 2, then 1 and 1")
}

func TestBatcherCancelledCaller(t *testing.T) {
	g, b := gated(t)
	ctx, cancel := context.WithCancel(t.Context())
	taken := g.occupy(ctx, b)
	waiting := call(ctx, b, "z")
	b.awaitQueued(t, 1)
	cancel()

	require.Equal(t, job.CodeDBError, job.CodeOf((<-waiting).Err), "a withdrawn item is not written")
	require.Zero(t, queued(b))
	for _, done := range taken {
		err := (<-done).Err
		require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
		require.ErrorContains(t, err, "outcome of the write is unknown")
		require.ErrorIs(t, err, context.Canceled)
	}
	close(g.open)
	b.stop()
	require.Empty(t, g.batches, "a withdrawn item is never flushed")
}

func TestBatcherStopFlushesWaitingItems(t *testing.T) {
	g, b := gated(t)
	calls := g.occupy(t.Context(), b)
	for i, item := range []string{"x", "y", "z"} { // x and y wait, because flushes with their keys are in progress
		calls = append(calls, call(t.Context(), b, item))
		b.awaitQueued(t, i+1)
	}
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	testkit.Eventually(t, "the batcher is closed", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.closed })
	_, err := b.Do(t.Context(), "late")
	require.ErrorIs(t, err, errClosed)
	select {
	case <-stopped:
		t.Fatal("stop did not wait for the flushes")
	default:
	}
	close(g.open)
	requireAnswers(t, calls...)
	<-stopped
	b.stop()
}
