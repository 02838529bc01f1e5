package repo

import (
	"context"
	"errors"
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

// A batcher of strings, without a database: the item is its own key, and the answer is the item. Flushes are what the test says.

type flushOfStrings func(items []string) ([]answer[string], error)

func testBatcher(t *testing.T, flush flushOfStrings) *batcher[string, string] {
	t.Helper()
	s := &Store{cfg: Config{Timeout: 10 * time.Second}, metrics: newMetrics(telemetry.In(nil))}
	b := newBatcher("test", s, func(_ context.Context, _ conn, items []string) ([]answer[string], error) { return flush(items) },
		func(item string) string { return item }, func(item string) int { return len(item) })
	b.start()
	t.Cleanup(b.stop)
	return b
}

func echo(items []string) ([]answer[string], error) {
	return column(items, func(s string) answer[string] { return answer[string]{value: s} }), nil
}

// gate is a flush that reports each batch and waits before it answers.
type gate struct {
	batches chan []string
	open    chan struct{}
}

// gated makes a batcher whose flushes wait for a gate.
func gated(t *testing.T) (*gate, *batcher[string, string]) {
	t.Parallel()
	g := &gate{make(chan []string, 100), make(chan struct{})}
	return g, testBatcher(t, g.flush)
}

func (g *gate) flush(items []string) ([]answer[string], error) {
	g.batches <- items
	<-g.open
	return echo(items)
}

// call hands in an item and leaves its answer in the returned channel.
func call(ctx context.Context, b *batcher[string, string], item string) <-chan answer[string] {
	done := make(chan answer[string], 1)
	go func() {
		v, err := b.do(ctx, item)
		done <- answer[string]{v, err}
	}()
	return done
}

// occupy keeps both flushers busy, with an item each, until the gate opens.
func (g *gate) occupy(ctx context.Context, b *batcher[string, string]) (calls []<-chan answer[string]) {
	for _, item := range []string{"x", "y"} {
		calls = append(calls, call(ctx, b, item))
		<-g.batches
	}
	return calls
}

func (b *batcher[T, R]) awaitQueued(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, "it comes about", func() bool { return b.queued() == n })
}

// requireAnswers waits for the answers to calls.
func requireAnswers(t *testing.T, calls ...<-chan answer[string]) {
	t.Helper()
	for _, done := range calls {
		require.NoError(t, (<-done).err)
	}
}

func TestBatcherKeepsEqualKeysApart(t *testing.T) {
	g, b := gated(t)
	first := call(t.Context(), b, "a")
	require.Equal(t, []string{"a"}, <-g.batches)
	second := call(t.Context(), b, "a")
	b.awaitQueued(t, 1)
	other := call(t.Context(), b, "b") // the free flusher takes it past the one that must wait
	require.Equal(t, []string{"b"}, <-g.batches)
	require.Equal(t, 1, b.queued())
	close(g.open)
	requireAnswers(t, first, second, other)
	require.Equal(t, []string{"a"}, <-g.batches)
}

func TestBatcherGathersAFewWhileAFlushIsUnderWay(t *testing.T) {
	g, b := gated(t)
	b.slow = time.Hour
	calls := []<-chan answer[string]{call(t.Context(), b, "x")}
	require.Equal(t, []string{"x"}, <-g.batches)
	for i := range batchThreshold - 1 {
		calls = append(calls, call(t.Context(), b, strconv.Itoa(i)))
		b.awaitQueued(t, i+1)
	}
	require.Empty(t, g.batches)
	g.open <- struct{}{}
	require.Len(t, <-g.batches, batchThreshold-1, "all of them in the next one")

	for i := range batchThreshold {
		calls = append(calls, call(t.Context(), b, "another "+strconv.Itoa(i)))
	}
	require.Len(t, <-g.batches, batchThreshold, "so many do not wait")
	close(g.open)
	requireAnswers(t, calls...)
	requireAnswers(t, call(t.Context(), b, "last"))
	b.stop()
	require.Zero(t, b.quick)
}

func TestBatcherDoesNotWaitForAFlushThatIsHeldUp(t *testing.T) {
	g, b := gated(t)
	b.slow = time.Millisecond
	calls := g.occupy(t.Context(), b)
	close(g.open)
	requireAnswers(t, calls...)
	b.stop()
	require.Zero(t, b.quick, "each flush was counted once")
}

func TestBatcherBounds(t *testing.T) {
	g, b := gated(t)
	calls := g.occupy(t.Context(), b)
	queue := func(item string) {
		n := b.queued()
		calls = append(calls, call(t.Context(), b, item))
		b.awaitQueued(t, n+1)
	}
	for i := range maxFlushItems + 10 {
		queue(strconv.Itoa(i))
	}
	big := make([]byte, maxFlushBytes/2)
	for i := range 5 {
		big[0] = byte(i)
		queue(string(big))
	}
	close(g.open)
	requireAnswers(t, calls...)
	b.stop()
	close(g.batches)
	var sizes []int
	for batch := range g.batches {
		sizes = append(sizes, len(batch))
	}
	slices.Sort(sizes)
	require.Equal(t, []int{1, 2, 12, maxFlushItems}, sizes, "10 small ones and 2 big ones fill a flush, 2 big ones another, 1 is left")
}

func TestBatcherRefusesWhenFull(t *testing.T) {
	t.Parallel()
	// Without a flusher nothing is ever taken.
	b := &batcher[string, string]{key: func(item string) string { return item }, operation: func(string) operation { return operation{} }}
	b.queue = make([]*waiter[string, string], maxQueued)
	_, err := b.do(t.Context(), "late")
	require.ErrorIs(t, err, errFull)
	require.Len(t, b.queue, maxQueued)
}

// A batch has one time limit for all of its parts, whatever its callers have.
func TestBatcherBoundsTheTimeOfABatch(t *testing.T) {
	g, b := gated(t)
	var mu sync.Mutex
	limits := map[time.Time]int{}
	b.flush = func(ctx context.Context, _ conn, items []string) ([]answer[string], error) {
		limit, _ := ctx.Deadline()
		mu.Lock()
		limits[limit]++
		mu.Unlock()
		_, _ = g.flush(items)
		return nil, pgError("23514")
	}
	began := time.Now()
	g.occupy(t.Context(), b)
	calls := []<-chan answer[string]{call(t.Context(), b, "a"), call(t.Context(), b, "b"), call(t.Context(), b, "c")}
	b.awaitQueued(t, len(calls))
	close(g.open)
	for _, done := range calls {
		require.Error(t, (<-done).err)
	}
	b.stop()
	var parts []int
	for limit, n := range limits {
		parts = append(parts, n)
		require.WithinRange(t, limit, began.Add(b.store.cfg.Timeout), time.Now().Add(2*b.store.cfg.Timeout))
	}
	slices.Sort(parts)
	require.Equal(t, []int{1, 1, 5}, parts, "3, then 1 and 2, then 1 and 1")
}

func TestBatcherPassesAnItemsOwnError(t *testing.T) {
	t.Parallel()
	own := errors.New("own")
	b := testBatcher(t, func(items []string) ([]answer[string], error) {
		return column(items, func(string) answer[string] { return answer[string]{err: own} }), nil
	})
	_, err := b.do(t.Context(), "a")
	require.ErrorIs(t, err, own)
	b = testBatcher(t, func([]string) ([]answer[string], error) { return nil, nil })
	_, err = b.do(t.Context(), "a")
	require.Error(t, err, "an answer is missing")
}

func TestBatcherCancelledCaller(t *testing.T) {
	g, b := gated(t)
	ctx, cancel := context.WithCancel(t.Context())
	taken := g.occupy(ctx, b)
	waiting := call(ctx, b, "z")
	b.awaitQueued(t, 1)
	cancel()

	require.Equal(t, job.CodeDBError, job.CodeOf((<-waiting).err), "it was not taken: nothing is written")
	require.Zero(t, b.queued())
	for _, done := range taken {
		err := (<-done).err
		require.Equal(t, job.CodeStorageUnavailable, job.CodeOf(err))
		require.ErrorContains(t, err, "outcome of the write is unknown")
		require.ErrorIs(t, err, context.Canceled)
	}
	close(g.open)
	b.stop()
	require.Empty(t, g.batches, "the withdrawn item was never flushed")
}

func TestBatcherStopFlushesWhatWaits(t *testing.T) {
	g, b := gated(t)
	calls := g.occupy(t.Context(), b)
	for i, item := range []string{"x", "y", "z"} { // two of them wait for their namesakes
		calls = append(calls, call(t.Context(), b, item))
		b.awaitQueued(t, i+1)
	}
	stopped := make(chan struct{})
	go func() { b.stop(); close(stopped) }()
	testkit.Eventually(t, "it comes about", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.closed })
	_, err := b.do(t.Context(), "late")
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
