package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/events"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// Promise: draft 3.6, 3.7, 6.7
func TestStreamCaps(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreams, c.MaxStreamsPerClient = 3, 2 })
	first, second := th.open(clientStream), th.open(jobStream)
	require.Equal(t, 1.0, testutil.ToFloat64(th.server.events.Engine.Metrics.Open.WithLabelValues(stream.KindClient)))
	r := th.ask("GET", clientStream)
	r.problem(job.CodeRateLimited)
	requireRetryAfter(t, r.Header)
	require.Equal(t, 200, th.ask("GET", clientStream, "Accept", "application/json").StatusCode, "lists are not streams")

	foreign := []string{"Authorization", "Bearer " + otherKey}
	third := th.open(clientStream, foreign...)
	r = th.ask("GET", clientStream, foreign...)
	require.Contains(t, r.problem(job.CodeQueueFull).Detail, "as many event streams")
	requireRetryAfter(t, r.Header)

	require.NoError(t, first.conn.Close())
	th.closed(stream.ClientGone, 1)
	fourth := th.open(clientStream, foreign...)
	for n, r := range []*reader{second, third, fourth} {
		require.NoError(t, r.conn.CloseWrite(), "half a close is a close")
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

// A failing start is not counted any more, nor is a panicking one. A panic in a
// stream ends that stream only.
func TestFailedStartsAreNotCounted(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(_ *Config, d *Deps) { d.Events = panicking{d.Events} })
	for range 3 {
		th.ask("GET", "/v1/jobs/01890000-0000-7000-8000-0000000000ff/events").problem(job.CodeJobNotFound)
		th.ask("GET", clientStream, "Last-Event-ID", "x").problem(job.CodeMalformed)
		th.ask("GET", clientStream).problem(job.CodeInternal)
	}
	requireNothingHeld(t, th.server)
}

type panicking struct{ events.Events }

func (panicking) FeedEnd(context.Context) (job.Position, error) { panic("no end") }

func TestPanicInAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.beforeWatch = func() { panic("no watch") }
	th.open(clientStream).end()
	th.closed(stream.Internal, 1)
	testkit.Eventually(t, "the panic is logged", func() bool { return strings.Contains(th.log.String(), "no watch") })
	require.Equal(t, 200, th.ask("GET", clientStream, "Accept", "").StatusCode)
}

// TestStalledReaderIsDropped lets one reader take nothing while more comes than
// all buffers hold. Another client's reader must not notice.
func TestStalledReaderIsDropped(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = 2 * time.Second })
	stalled := th.stuck(clientStream)
	other := th.open(clientStream, "Authorization", "Bearer "+otherKey)
	th.history.watched(t, 2)
	th.history.change(func() { th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 64<<10) + `"}`) })
	for range 200 {
		th.history.record(jobID, job.EventEmitted)
	}
	th.closed(stream.Stalled, 1)
	_, err := io.Copy(io.Discard, stalled)
	require.ErrorIs(t, err, syscall.ECONNRESET, "what it did not take is thrown away")
	th.history.change(func() { th.history.data = json.RawMessage(`{}`) })
	th.history.record(foreignID, job.EventEmitted)
	other.events("event-emitted")
}

// TestShutdownEndsStreams has streams of all sorts open: idle, being written
// to, and stuck on a reader that takes nothing.
func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = time.Hour })
	th.stuck(clientStream)
	idle := []*reader{th.open(clientStream, "Authorization", "Bearer "+otherKey)}
	for range 20 {
		idle = append(idle, th.open(clientStream, "Authorization", "Bearer "+otherKey))
	}
	th.history.watched(t, 22)
	th.history.change(func() { th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 64<<10) + `"}`) })
	for range 200 {
		th.history.record(jobID, job.EventEmitted)
	}
	th.shutdown() // which does not wait until the stuck write fails
	for _, r := range idle {
		r.end()
	}
	th.closed(stream.Shutdown, 22)
	require.NoError(t, within(t, th.served))
	require.Empty(t, th.history.watchers)
}

// The answer to a request before is not lost, what comes after is not answered,
// and the stream is not disturbed by it.
func TestStreamInAPipeline(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	c := th.dial()
	th.write(c, getHealth+th.request("GET", jobStream)+getHealth)
	in := bufio.NewReader(c)
	require.Equal(t, 200, th.read(in).StatusCode)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	r := &reader{t: t, conn: c, in: bufio.NewReader(res.Body)}
	require.NotZero(t, r.block().retry)
	r.events("job-created")
	th.write(c, strings.Repeat(getHealth, 20))
	th.history.record(jobID, job.EventQueued, job.EventCanceled)
	r.events("job-queued", "job-canceled")
	_, err = io.Copy(io.Discard, c) // it ends, or is reset: for what was not read of the client
	require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), err)
}

func TestStreamOverHTTP10(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated, job.EventCanceled)
	c := th.dial()
	th.write(c, strings.Replace(th.request("GET", jobStream), "HTTP/1.1", "HTTP/1.0", 1))
	r := th.answer(c, "GET")
	require.True(t, r.Close)
	require.Empty(t, r.TransferEncoding, "HTTP/1.0 knows no chunks")
	require.NotZero(t, r.block().retry)
	r.events("job-created", "job-canceled")
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

// bareStream is a stream of client A's job on a pipe, for a test with a clock that it moves.
func bareStream(t *testing.T, h *history) (s *Server, clients *fakeClients, st *stream.Stream, far net.Conn) {
	h.add(clientA, jobID)
	clients = &fakeClients{}
	s = New(Config{}, Deps{Reader: h, Events: h, Clients: clients, Jobs: &fakeJobs{}, Schedules: &fakeSchedules{}, Webhooks: &fakeWebhooks{}})
	near, far := net.Pipe()
	release, err := s.Waits.Acquire(clientA)
	require.NoError(t, err)
	st = s.events.JobStream(clientA, jobID)
	st.Client, st.Conn, st.Head, st.Release = clientA, near, stream.Start(""), release
	st.Authorization = [][]byte{[]byte("Bearer " + goodKey)}
	return s, clients, st, far
}

// Storage that stays away ends a stream after half a minute.
func TestStorageAwayForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		s, _, st, far := bareStream(t, h)
		start := time.Now()
		h.failing = errors.New("away")
		go s.events.Engine.Run(st)
		r := &reader{t: t, in: bufio.NewReader(far)}
		require.NotZero(t, r.block().retry)
		require.True(t, r.block().comment)
		require.Equal(t, 15*time.Second, time.Since(start))
		r.end()
		require.WithinRange(t, time.Now(), start.Add(30*time.Second), start.Add(35*time.Second))
		require.NoError(t, s.Waits.Wait(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(s.events.Engine.Metrics.Closed.WithLabelValues(string(stream.Storage))))
		require.Less(t, h.reads, 20)
	})
}

// However long a page takes, a key that was revoked ends it at once, or with the next heartbeat if the notice is lost.
func TestKeyIsCheckedWithinAPage(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"told": 2, "not told": 6} { // one is on its way; 4 s for each, and a look at the key every 15 s
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireEventsAfterRevocation(t, name == "told", most)
		})
	}
}

// requireEventsAfterRevocation revokes a key with the first event of a page, and reads one each 4 s.
func requireEventsAfterRevocation(t *testing.T, told bool, most int) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		s, clients, st, far := bareStream(t, h)
		h.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 8<<10) + `"}`)
		for range 20 {
			h.record(jobID, job.EventEmitted)
		}
		var err error
		st.First, err = st.Source.Read(t.Context(), stream.PageSize)
		require.NoError(t, err)
		require.Len(t, st.First.Events, 20)
		go s.events.Engine.Run(st)
		in, events := bufio.NewReader(far), 0
		for {
			b, err := readBlock(in)
			if err != nil {
				break
			}
			if b.event == "event-emitted" {
				events++
				clients.revoke(goodKey)
				if told {
					clients.tell()
				}
				time.Sleep(4 * time.Second)
			}
		}
		require.LessOrEqual(t, events, most)
		require.NoError(t, s.Waits.Wait(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(s.events.Engine.Metrics.Closed.WithLabelValues(string(stream.Unauthorized))))
	})
}

// Readers that take almost nothing of very much hold a page each, and nothing of what comes after it.
func TestSlowReadersHoldLittleMemory(t *testing.T) {
	// A page ends with its first event of this size: as it was read, as it is sent, and in buffers that grow by doubling it is
	// held up to five times. One that reads ahead without that end of a page holds 100. The bound is between the two.
	const streams, event, bound = 10, 256 << 10, 20
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = time.Hour }) // not parallel: it measures the heap
	th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", event) + `"}`)
	for range 2 * stream.PageSize {
		th.history.record(jobID, job.EventEmitted)
	}
	before := memory()
	for range streams {
		th.stuck(jobStream)
	}
	th.history.watched(t, streams)
	for last := -1; last != th.history.readSoFar(); { // until all are stuck: nobody reads any more
		last = th.history.readSoFar()
		time.Sleep(200 * time.Millisecond)
	}
	require.Less(t, memory()-before, int64(streams*bound*event))
}

func (h *history) readSoFar() (n int) {
	h.change(func() { n = h.reads })
	return n
}

func memory() int64 {
	var m runtime.MemStats
	for range 4 { // stacks shrink by half at each collection, and buffers in pools survive the first
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestIdleStreamsAreSmall opens streams over real connections, each of which has sent an event, and measures the memory that Go holds for
// heap and stacks, the test's own ends of the connections included.
func TestIdleStreamsAreSmall(t *testing.T) {
	const n, bound = 300, 24 << 10 // 5,000 of them in 120 MB; under the race detector too
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = n })
	th.history.record(jobID, job.EventCreated)
	buf := make([]byte, 16<<10)
	open := func(count int) {
		for range count {
			c := th.dial()
			th.write(c, th.request("GET", jobStream))
			for got := ""; !strings.HasSuffix(got, "}\n\n"); {
				k, err := c.Read(buf)
				require.NoError(t, err)
				got += string(buf[:k])
			}
		}
	}
	open(10)
	before := memory()
	open(n - 10)
	th.history.watched(t, n)
	require.Less(t, int(memory()-before)/(n-10), bound)
}
