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

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

func TestStreamCaps(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreams, c.MaxStreamsPerClient = 3, 2 })
	first, second := th.open(clientStream), th.open(jobStream)
	require.Equal(t, 1.0, testutil.ToFloat64(th.server.streams.Metrics.Open.WithLabelValues(stream.KindClient)))
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

// A failing start is not counted any more, nor is a panicking one.
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

type panicking struct{ Events }

func (panicking) FeedEnd(context.Context) (job.Position, error) { panic("no end") }

// A panic in a stream ends that stream only.
func TestPanicInAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(_ *Config, d *Deps) { d.Events = unwatchable{d.Events} })
	th.open(clientStream).end()
	th.closed(stream.Internal, 1)
	require.Contains(t, th.log.String(), "no watch")
	require.Equal(t, 200, th.ask("GET", clientStream, "Accept", "").StatusCode)
}

type unwatchable struct{ Events }

func (unwatchable) Watch(_, _ job.ID) (<-chan job.Notification, func()) { panic("no watch") }

// A connection may fail between the answer's decision and the stream's begin:
// here because the answer to the request before cannot be written.
func TestLimitOfAStreamThatNeverBegins(t *testing.T) {
	t.Parallel()
	s := New(Config{PublicURL: publicURL}, Deps{})
	release, err := s.limiter.Acquire(clientA)
	require.NoError(t, err)
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	accepted, err := conn.NewListener(single{conn: near}, conn.Limits{}).Accept()
	require.NoError(t, err)
	c := accepted.(*conn.Conn)
	c.OnClose.Store(&release)
	require.NoError(t, c.Close())
	requireNothingHeld(t, s)
}

// single is a listener that accepts one connection.
type single struct {
	net.Listener
	conn net.Conn
}

func (s single) Accept() (net.Conn, error) { return s.conn, nil }

func requireNothingHeld(t testing.TB, s *Server) {
	t.Helper()
	total, clients := s.limiter.Held()
	require.Zero(t, total)
	require.Zero(t, clients)
}

// TestStalledReaderIsDropped lets one reader take nothing while more comes than
// all buffers hold. The other reader must not notice.
func TestStalledReaderIsDropped(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.StallTimeout = 2 * time.Second }) // a busy machine may hold up the eager one as well
	stalled := th.dial()
	require.NoError(t, stalled.SetReadBuffer(4096))
	_, err := io.WriteString(stalled, th.request("GET", clientStream))
	require.NoError(t, err)
	eager := th.open(clientStream)
	eager.path = "" // checking its frames would make it slow
	th.history.watched(t, 2)
	const events = 200
	th.history.change(func() { th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 64<<10) + `"}`) })
	for range events {
		th.history.record(jobID, job.EventEmitted)
	}
	for n := range events {
		require.Contains(t, eager.next().data, `"seq":`+strconv.Itoa(n+1)+`,`)
	}
	th.closed(stream.Stalled, 1)
	_, err = io.Copy(io.Discard, stalled)
	require.Error(t, err, "what it did not take is thrown away")
	th.history.change(func() { th.history.data = json.RawMessage(`{}`) })
	th.history.record(jobID, job.EventEmitted)
	eager.events("event-emitted")
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 10 * time.Millisecond })
	r := th.open(jobStream)
	for range 5 {
		require.True(t, r.block().comment)
	}
}

// TestShutdownEndsStreams has streams of all sorts open: idle, being written
// to, and stuck on a reader that takes nothing.
func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	stuck := th.dial()
	require.NoError(t, stuck.SetReadBuffer(4096))
	_, err := io.WriteString(stuck, th.request("GET", clientStream))
	require.NoError(t, err)
	idle := []*reader{th.open(clientStream, "Authorization", "Bearer "+otherKey)}
	for range 20 {
		idle = append(idle, th.open("/v1/events", "Authorization", "Bearer "+otherKey))
	}
	th.history.watched(t, 22)
	th.history.change(func() { th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 64<<10) + `"}`) })
	for range 200 {
		th.history.record(jobID, job.EventEmitted)
	}
	start := time.Now()
	th.shutdown()
	require.Less(t, time.Since(start), 5*time.Second, "it does not wait until the stuck write fails")
	for _, r := range idle {
		r.end()
	}
	th.closed(stream.Shutdown, 22)
	require.NoError(t, <-th.served)
	require.Empty(t, th.history.watchers)
}

func TestStreamsLeaveNothingBehind(t *testing.T) {
	th := newStreamServer(t) // not parallel: it counts the goroutines of all streams
	require.Zero(t, streamGoroutines())
	for range 30 {
		th.open(clientStream)
	}
	th.history.watched(t, 30)
	require.GreaterOrEqual(t, streamGoroutines(), 60)
	th.shutdown()
	eventually(t, func() bool { return streamGoroutines() == 0 })
}

// streamGoroutines counts the calls of streams' methods on all stacks.
func streamGoroutines() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "handlers/stream.(*Stream).")
}

// The answer to a request before is not lost, what comes after is not answered,
// and the stream is not disturbed by it.
func TestStreamInAPipeline(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	c := th.dial()
	health := "GET /problems/ HTTP/1.1\r\nHost: x\r\n\r\n"
	_, err := io.WriteString(c, health+th.request("GET", jobStream)+health)
	require.NoError(t, err)
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	res, err = http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	r := &reader{t: t, conn: c, in: bufio.NewReader(res.Body)}
	require.NotZero(t, r.block().retry)
	r.events("job-created")
	_, err = io.WriteString(c, strings.Repeat(health, 20))
	require.NoError(t, err)
	th.history.record(jobID, job.EventQueued, job.EventCanceled)
	r.events("job-queued", "job-canceled")
	_, err = io.Copy(io.Discard, c) // it ends, or is reset: for what was not read of the client
	require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), err)
}

func TestClientThatSendsTooMuchIsCutOff(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	r := th.open(clientStream)
	_, err := io.WriteString(r.conn, strings.Repeat("x", 64<<10))
	require.NoError(t, err)
	r.end()
	th.closed(stream.ClientGone, 1)
}

func TestStreamOverHTTP10(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated, job.EventCanceled)
	c := th.dial()
	_, err := io.WriteString(c, strings.Replace(th.request("GET", jobStream), "HTTP/1.1", "HTTP/1.0", 1))
	require.NoError(t, err)
	r := th.answer(c, "GET")
	require.True(t, r.Close)
	require.NotZero(t, r.block().retry)
	r.events("job-created", "job-canceled")
	r.end()
}

// Storage that stays away ends a stream after half a minute, of a clock that
// the test moves.
func TestStorageAwayForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		h.add(clientA, jobID)
		keys := &keyring{keys: map[string]job.ID{goodKey: clientA}}
		s := New(Config{}, Deps{Reader: h, Events: h, Clients: keys})
		near, far := net.Pipe()
		release, err := s.limiter.Acquire(clientA)
		require.NoError(t, err)
		from := &jobSource{server: s, client: clientA, job: jobID}
		st := &stream.Stream{
			Source: from, JobID: jobID, Job: from.current, Client: clientA, Conn: near,
			Head: stream.Start(""), Release: release, Authorization: [][]byte{[]byte("Bearer " + goodKey)},
		}
		start := time.Now()
		h.failing = errors.New("away")
		go s.streams.Run(st)
		r := &reader{t: t, in: bufio.NewReader(far)}
		require.NotZero(t, r.block().retry)
		require.True(t, r.block().comment)
		require.Equal(t, 15*time.Second, time.Since(start))
		r.end()
		require.WithinRange(t, time.Now(), start.Add(30*time.Second), start.Add(35*time.Second))
		require.NoError(t, s.limiter.Wait(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(s.streams.Metrics.Closed.WithLabelValues(string(stream.Storage))))
		require.Less(t, h.reads, 20)
	})
}
