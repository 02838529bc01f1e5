package handlers

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// Promise: draft 3.6, 3.7, 6.7
func TestStreamCaps(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreams, c.MaxStreamsPerClient = 3, 2 })
	_, path := th.submitted()
	first, second := th.open(clientStream), th.open(path)
	second.events("job-created", "job-queued")
	require.Equal(t, 1.0, testutil.ToFloat64(th.server.events.Engine.Metrics.Open.WithLabelValues(stream.KindClient)))
	r := th.ask("GET", clientStream)
	r.problem(job.CodeRateLimited)
	requireRetryAfter(t, r.Header)
	require.Equal(t, 200, th.ask("GET", clientStream, "Accept", "application/json").StatusCode, "lists are not streams")

	foreign := []string{"Authorization", "Bearer " + otherKey}
	third := th.open(clientStream, foreign...)
	r = th.ask("GET", clientStream, foreign...)
	require.Contains(t, r.problem(job.CodeQueueFull).Detail, "limit of event streams")
	requireRetryAfter(t, r.Header)

	require.NoError(t, first.conn.Close())
	th.closed(stream.ClientGone, 1)
	fourth := th.open(clientStream, foreign...)
	for n, r := range []*reader{second, third, fourth} {
		require.NoError(t, r.conn.CloseWrite(), "closing the write side ends the stream")
		r.end()
		th.closed(stream.ClientGone, n+2)
	}
}

func requireRetryAfter(t *testing.T, h http.Header) {
	t.Helper()
	n, err := strconv.Atoi(h.Get("Retry-After"))
	require.NoError(t, err)
	require.True(t, 1 <= n && n <= 5, n)
}

func TestFailedStartsAreNotCounted(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.Exec(`ALTER TABLE client_events RENAME TO gone`)
	for range 3 {
		th.ask("GET", nobodysSelf+"/events").problem(job.CodeJobNotFound)
		th.ask("GET", clientStream, "Last-Event-ID", "x").problem(job.CodeMalformed)
		require.GreaterOrEqual(t, th.ask("GET", clientStream).StatusCode, 500)
	}
	requireNothingHeld(t, th.server)
}

func TestPanicInAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.server.events.Engine.Watch = func(job.ID, job.ID) (<-chan job.Notification, func()) { panic("no watch") }
	th.open(clientStream).end()
	th.closed(stream.Internal, 1)
	testkit.Eventually(t, "the panic is logged", func() bool { return strings.Contains(th.log.String(), "no watch") })
	require.Equal(t, 200, th.ask("GET", clientStream, "Accept", "").StatusCode)
}

// TestStalledReaderIsDropped opens a stream, reads nothing, and sends more events than all buffers hold. A stream of another client must
// not be affected.
func TestStalledReaderIsDropped(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = 2 * time.Second })
	stalled := th.stuck(clientStream)
	other := th.open(clientStream, "Authorization", "Bearer "+otherKey)
	th.watched(2)
	th.emit(backend.QueuedJob, 200, large(64<<10))
	th.closed(stream.Stalled, 1)
	_, err := io.Copy(io.Discard, stalled)
	require.ErrorIs(t, err, syscall.ECONNRESET, "unsent data is discarded")
	th.emit(backend.ForeignJob, 1, `{"work_kind":"x"}`)
	other.events("event-emitted")
}

func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = time.Hour })
	th.stuck(clientStream)
	idle := []*reader{th.open(clientStream, "Authorization", "Bearer "+otherKey)}
	for range 20 {
		idle = append(idle, th.open(clientStream, "Authorization", "Bearer "+otherKey))
	}
	th.watched(22)
	th.emit(backend.QueuedJob, 200, large(64<<10))
	th.shutdown() // returns long before the stall timeout
	for _, r := range idle {
		r.end()
	}
	th.closed(stream.Shutdown, 22)
	require.NoError(t, within(t, th.served))
	require.Zero(t, th.watchers())
}

// Requests before a stream on the same connection get their response. Requests after it get none, and do not disturb the stream.
func TestStreamInAPipeline(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	c := th.dial()
	th.write(c, getHealth+th.request("GET", path)+getHealth)
	in := bufio.NewReader(c)
	require.Equal(t, 200, th.read(in).StatusCode)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	r := &reader{t: t, conn: c, in: bufio.NewReader(res.Body)}
	require.NotZero(t, r.block().retry)
	r.events("job-created", "job-queued")
	th.write(c, strings.Repeat(getHealth, 20))
	th.Move(id, job.Canceled)
	r.events("job-canceled")
	_, err = io.Copy(io.Discard, c) // the server may reset the connection, because it has unread input
	require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), err)
}

func TestStreamOverHTTP10(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	c := th.dial()
	th.write(c, strings.Replace(th.request("GET", jobStream), "HTTP/1.1", "HTTP/1.0", 1))
	r := th.answer(c, "GET")
	require.True(t, r.Close)
	require.Empty(t, r.TransferEncoding, "HTTP/1.0 has no chunked encoding")
	require.NotZero(t, r.block().retry)
	r.events(append(allFrames, "job-succeeded")...)
	r.end()
}

func TestClientThatSendsTooMuchIsCutOff(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	r := th.open(clientStream)
	th.write(r.conn, strings.Repeat("x", 64<<10))
	r.end()
	th.closed(stream.ClientGone, 1)
}

// memory does not use HeapInuse, because this includes fragmentation that other tests have left. It would add up to 10 KB per stream to
// the results.
func memory() int64 {
	var m runtime.MemStats
	for range 4 { // one collection is not enough: it only halves stacks, and pooled buffers survive it
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// TestIdleStreamsAreSmall opens streams over real connections, sends an event on each, and measures heap and stacks. The result includes
// the client's ends of the connections.
func TestIdleStreamsAreSmall(t *testing.T) {
	const n, early, bound = 250, 100, 24 << 10 // bound: bytes per stream (5,000 streams: 120 MB), also with the race detector
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = n })
	_, path := th.submitted()
	buf := make([]byte, 16<<10)
	open := func(count int) {
		for range count {
			c := th.dial()
			th.write(c, th.request("GET", path))
			for got := ""; !strings.HasSuffix(got, "}\n\n"); {
				k, err := c.Read(buf)
				require.NoError(t, err)
				got += string(buf[:k])
			}
		}
	}
	open(early) // allocates shared buffers and connections to Postgres
	before := memory()
	open(n - early)
	th.watched(n)
	require.Less(t, int(memory()-before)/(n-early), bound)
}
