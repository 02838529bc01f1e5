package handlers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/handlers/views"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

type streamServer struct{ *world }

func newStreamServer(t testing.TB, change ...func(*Config, *Deps)) *streamServer {
	t.Helper()
	th := &streamServer{newWorld(t, change...).start()}
	t.Cleanup(func() {
		th.shutdown()
		require.Zero(t, th.watchers(), "all watchers are gone")
		requireNothingHeld(t, th.server)
		for _, kind := range []string{stream.KindJob, stream.KindClient} {
			require.Zero(t, testutil.ToFloat64(th.server.events.Engine.Metrics.Open.WithLabelValues(kind)))
		}
	})
	return th
}

func (th *streamServer) watchers() int {
	watchers := th.Metrics.Watchers
	return int(testutil.ToFloat64(watchers.WithLabelValues("job")) + testutil.ToFloat64(watchers.WithLabelValues("client")))
}

func (th *streamServer) watched(n int) {
	th.t.Helper()
	testkit.Eventually(th.t, "streams watch", func() bool { return th.watchers() == n })
}

func (th *streamServer) submitted() (job.ID, string) {
	th.t.Helper()
	j := th.made(th.submit(""))
	return j.ID, views.JobPath(j.ID) + "/events"
}

func (th *streamServer) emit(id job.ID, n int, data string) {
	th.t.Helper()
	th.emitSilently(id, n, data)
	th.Changed(backend.ClientA, id)
	th.Changed(backend.ClientB, id)
}

func (th *streamServer) emitSilently(id job.ID, n int, data string) {
	th.t.Helper()
	th.Exec(`WITH j AS (UPDATE jobs SET event_seq = event_seq + $2::int, event_tx = pg_current_xact_id() WHERE job_id = $1 RETURNING *)
		INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		SELECT job_id, client_id, event_seq - $2 + i, uuid7(clock_timestamp()), 'event.emitted', attempt, clock_timestamp(), $3::jsonb
		FROM j, generate_series(1, $2) i`, id.String(), n, data)
}

func large(n int) string { return `{"work_kind":"x","x":"` + strings.Repeat("x", n) + `"}` }

func (th *streamServer) progress(id job.ID, attempt, percentage int) {
	p := &job.Progress{Percentage: percentage, Phase: "WORKING", StepsCompleted: percentage, StepsTotal: 100, ItemsTotal: 7,
		UpdatedAt: job.Time(at(percentage))}
	th.Queue.Publish(job.Notification{ClientID: backend.ClientA, JobID: id, Attempt: attempt, Progress: p})
}

func requireNothingHeld(t testing.TB, s *Server) {
	t.Helper()
	total, clients := s.Waits.Held()
	require.Zero(t, total)
	require.Zero(t, clients)
}

func (th *streamServer) closed(reason stream.Ending, n int) {
	th.t.Helper()
	testkit.Eventually(th.t, "streams end by "+string(reason), func() bool {
		return testutil.ToFloat64(th.server.events.Engine.Metrics.Closed.WithLabelValues(string(reason))) == float64(n)
	})
}

func (th *streamServer) ended() string {
	th.t.Helper()
	testkit.Eventually(th.t, "the end is logged", func() bool { return strings.Contains(th.log.String(), "stream ended") })
	return th.log.String()
}

type reader struct {
	t    testing.TB
	conn *net.TCPConn
	in   *bufio.Reader
	*http.Response
	lastID string // last id received
	path   string // path of the stream; "": frames are not checked
}

var jobStream = jobSelf + "/events"

const clientStream = "/v1/events"

var allFrames = []string{"job-created", "job-queued", "job-assigned", "job-running"}

func (w *world) request(method, path string, headers ...string) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: x\r\n"
	given := map[string]string{"Authorization": "Bearer " + goodKey, "Accept": "text/event-stream"}
	for i := 0; i < len(headers); i += 2 {
		given[headers[i]] = headers[i+1]
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] != "" {
			text += name + ": " + given[name] + "\r\n"
		}
	}
	return text + "\r\n"
}

func (th *streamServer) ask(method, path string, headers ...string) *reader {
	th.t.Helper()
	c := th.dial()
	th.write(c, th.request(method, path, headers...))
	r := th.answer(c, method)
	if r.Header.Get("Content-Type") == httpkit.EventStream {
		r.path, _, _ = strings.Cut(path, "?")
		require.NoError(th.t, apitest.New(th.t, docs.OpenAPI).Verify(method, r.path, r.Response, nil))
	}
	return r
}

func (th *streamServer) answer(c *net.TCPConn, method string) *reader {
	th.t.Helper()
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, &http.Request{Method: method})
	require.NoError(th.t, err)
	return &reader{t: th.t, conn: c, in: bufio.NewReader(res.Body), Response: res}
}

func (th *streamServer) stuck(path string) *net.TCPConn {
	th.t.Helper()
	c := th.dial()
	require.NoError(th.t, c.SetReadBuffer(4096))
	th.write(c, th.request("GET", path))
	return c
}

func (th *streamServer) open(path string, headers ...string) *reader {
	th.t.Helper()
	r := th.ask("GET", path, headers...)
	require.Equal(th.t, 200, r.StatusCode)
	require.Equal(th.t, "text/event-stream", r.Header.Get("Content-Type"))
	require.NotZero(th.t, r.block().retry, "the stream starts with retry")
	return r
}

func (r *reader) problem(code job.Code) problem.Document {
	r.t.Helper()
	text, err := io.ReadAll(r.in)
	require.NoError(r.t, err)
	return (&reply{r.Response, string(text)}).requireProblem(r.t, code)
}

func (r *reader) block() block {
	r.t.Helper()
	b, err := readBlock(r.in)
	require.NoError(r.t, err)
	if b.id != "" {
		r.lastID = b.id
	}
	return b
}

func (r *reader) next() block {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetDeadline(time.Now().Add(testkit.Patience))) // per read, not for the whole stream
	for {
		b := r.block()
		if b.comment {
			continue
		}
		if r.path != "" {
			require.NoError(r.t, apitest.New(r.t, docs.AsyncAPI).VerifyFrame(r.path, b.id, b.event, b.data))
		}
		return b
	}
}

func (r *reader) events(names ...string) []block {
	r.t.Helper()
	blocks := make([]block, len(names))
	for i, name := range names {
		blocks[i] = r.next()
		require.Equal(r.t, name, blocks[i].event)
	}
	return blocks
}

func (r *reader) end() {
	r.t.Helper()
	for {
		b, err := readBlock(r.in)
		if err != nil {
			require.ErrorIs(r.t, err, io.EOF)
			return
		}
		require.True(r.t, b.comment, "%+v", b)
	}
}

func (b block) percentage(t testing.TB) int {
	t.Helper()
	require.Equal(t, stream.ProgressEvent, b.event)
	require.Empty(t, b.id, "progress has no id")
	var p struct {
		Progress struct{ Percentage int }
	}
	require.NoError(t, json.Unmarshal([]byte(b.data), &p))
	return p.Progress.Percentage
}

type block struct {
	id, event, data string
	retry           int    // only in the first block
	comment         bool   // a heartbeat or a note
	note            string // text of the comment
}

// blockForm is stricter than the standard. It requires the order id, event, data, each at most once, one space after the colon, and LF at
// line ends.
var blockForm = regexp.MustCompile(`^(?:(:)(?: ([^\n\r\x00]*))?|(?:retry: ([12]\d{3}|3000)(?:\n|$))?(?:id: ([A-Za-z0-9_-]+)(?:\n|$))?` +
	`(?:event: ([a-z]+(?:-[a-z]+)*)\ndata: ([^\n\r\x00]+))?)$`)

func readBlock(r *bufio.Reader) (b block, err error) {
	var text []byte
	for !bytes.HasSuffix(text, []byte("\n\n")) {
		line, err := r.ReadBytes('\n')
		if text = append(text, line...); err != nil {
			if len(text) > 0 {
				return b, fmt.Errorf("cut within a block, after %q: %w", text, err)
			}
			return b, err
		}
	}
	found := blockForm.FindSubmatch(text[:len(text)-2])
	if found == nil || len(found[3])+len(found[5]) == 0 && len(found[1]) == 0 ||
		len(found[3]) > 0 && len(found[5]) > 0 && string(found[5]) != stream.PositionEvent {
		return b, fmt.Errorf("a block of %q", text)
	}
	b = block{id: string(found[4]), event: string(found[5]), data: string(found[6]), comment: len(found[1]) > 0, note: string(found[2])}
	b.retry, _ = strconv.Atoi(string(found[3]))
	var compact bytes.Buffer
	if b.data != "" {
		if err = json.Compact(&compact, found[6]); err == nil && compact.String() != b.data {
			err = fmt.Errorf("data is not compact: %q", b.data)
		}
	}
	return b, err
}
