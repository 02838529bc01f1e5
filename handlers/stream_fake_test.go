package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// history is an in-memory log of events with its watchers: all that a stream
// needs of the use cases.
type history struct {
	Reader // what streams do not use

	mu       sync.Mutex
	events   []job.Occurrence // in the order of their positions
	owners   map[job.ID]job.ID
	jobs     map[job.ID]*job.Job
	data     json.RawMessage // of events recorded from now on
	withheld int             // so many of the latest events wait for a transaction
	failing  error           // the answer to every read of events, if set
	reads    int
	watchers map[chan job.Notification]job.Notification // what each hears, as client and job
}

func newHistory() *history {
	return &history{
		data: json.RawMessage(`{"work_kind": "FAST_SUCCESS",` + "\n" + ` "t": "<&>"}`), owners: map[job.ID]job.ID{},
		jobs: map[job.ID]*job.Job{}, watchers: map[chan job.Notification]job.Notification{},
	}
}

// add makes a job that has no events yet.
func (h *history) add(client, id job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owners[id] = client
	h.jobs[id] = &job.Job{ID: id, ClientID: client, Attempt: 1, State: job.Created, WorkKind: job.SuccessFast, CreatedAt: now, Language: "en"}
}

// record adds the next event of a job and tells those who watch.
func (h *history) record(id job.ID, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.append(id, name)
	}
	h.publish(job.Notification{ClientID: h.owners[id], JobID: id})
}

var nextState = map[string]job.State{
	job.EventCreated: job.Created, job.EventQueued: job.Queued, job.EventAssigned: job.Assigned, job.EventRunning: job.Running,
	job.EventSucceeded: job.Succeeded, job.EventFailed: job.Failed, job.EventCanceled: job.Canceled, job.EventRetried: job.Queued,
}

func (h *history) append(id job.ID, name string) {
	j := h.jobs[id]
	j.EventSeq++
	if name == job.EventRetried {
		j.Attempt++
	}
	at := now.Add(time.Duration(len(h.events)) * time.Millisecond)
	o := job.Occurrence{
		Event: job.Event{
			ID: mustID(fmt.Sprintf("01890000-0000-7000-9000-%012d", len(h.events))), JobID: id, Seq: j.EventSeq, Name: name,
			Prev: j.State, Next: nextState[name], Attempt: j.Attempt, At: at, Data: h.data,
		},
		Position: job.Position{Tx: uint64(100 + len(h.events)), ID: id, Seq: j.EventSeq},
		Origin:   j.Origin(),
	}
	if o.Next != "" {
		j.State = o.Next
	} else {
		o.Prev = ""
	}
	if o.Next.Final() {
		ended := job.Attempt{Number: j.Attempt, State: o.Next, FinishedAt: &at}
		if o.Next == job.Failed {
			ended.Failure = job.NewFailure(job.FailedOnce, j.Attempt, job.Backoff{})
		}
		o.Ended = &ended
	}
	h.events = append(h.events, o)
}

// progress tells of progress, which becomes what is known of the job.
func (h *history) progress(id job.ID, attempt, percentage int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &job.Progress{
		Percentage: percentage, Phase: "WORKING", StepsCompleted: percentage, StepsTotal: 100, ItemsTotal: 7,
		UpdatedAt: now.Add(time.Duration(percentage) * time.Second),
	}
	if j := h.jobs[id]; j.Attempt == attempt {
		j.Progress = p
	}
	h.publish(job.Notification{ClientID: h.owners[id], JobID: id, Attempt: attempt, Progress: p})
}

// publish merges as the hub does.
func (h *history) publish(n job.Notification) {
	for c, wanted := range h.watchers {
		if n.ClientID != wanted.ClientID || !wanted.JobID.IsZero() && n.JobID != wanted.JobID || wanted.JobID.IsZero() && n.Progress != nil {
			continue
		}
		next := n
		select {
		case pending := <-c:
			if pending.Progress != nil && n.Progress == nil {
				next.Attempt, next.Progress = pending.Attempt, pending.Progress
			}
		default:
		}
		c <- next
	}
}

func (h *history) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *history) find(client, id job.ID) (*job.Job, error) {
	if h.failing != nil {
		return nil, h.failing
	}
	if h.owners[id] != client || client.IsZero() {
		return nil, job.Errorf(job.CodeJobNotFound, "There is no such job.")
	}
	j := *h.jobs[id]
	return &j, nil
}

func (h *history) Job(_ context.Context, client, id job.ID) (*job.Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j, err := h.find(client, id)
	if err == nil && j.State != job.Running {
		j.Progress = nil
	}
	return j, err
}

func (h *history) JobEvents(_ context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	j, err := h.find(client, id)
	if err != nil {
		return job.Log{}, err
	}
	log := job.Log{Last: j.EventSeq}
	for _, o := range h.events {
		if o.JobID == id && o.Seq > after && len(log.Events) < limit && dataBytes(log.Events) < fakePageBytes {
			log.Events = append(log.Events, o)
		}
	}
	log.Ended = j.State.Final() && after+len(log.Events) >= j.EventSeq
	return log, nil
}

func (h *history) ClientEvents(_ context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	if h.failing != nil {
		return job.Feed{}, h.failing
	}
	var feed job.Feed
	for i, o := range h.events {
		if h.owners[o.JobID] != client || !behind(after, o.Position) {
			continue
		}
		if i >= len(h.events)-h.withheld {
			feed.Held = true
		} else if len(feed.Events) < limit && dataBytes(feed.Events) < fakePageBytes {
			feed.Events = append(feed.Events, o)
		} else {
			feed.More = true
		}
	}
	return feed, nil
}

// fakePageBytes is where a page ends, as in the real storage.
const fakePageBytes = 256 << 10

func dataBytes(events []job.Occurrence) (n int) {
	for _, o := range events {
		n += len(o.Data)
	}
	return n
}

func behind(a, b job.Position) bool {
	return a.Tx < b.Tx || a.Tx == b.Tx && (a.ID.String() < b.ID.String() || a.ID == b.ID && a.Seq < b.Seq)
}

func (h *history) FeedEnd(context.Context) (job.Position, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return job.Position{Tx: uint64(100 + len(h.events) - h.withheld)}, h.failing
}

func (h *history) Watch(client, id job.ID) (<-chan job.Notification, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan job.Notification, 1)
	h.watchers[c] = job.Notification{ClientID: client, JobID: id}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
	}
}

// watched waits until so many streams watch.
func (h *history) watched(t testing.TB, n int) {
	t.Helper()
	eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.watchers) == n
	})
}

// eventually waits for what nobody tells.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, streamPatience, time.Millisecond)
}

// keyring is Clients with keys that can be taken away.
type keyring struct {
	Clients
	mu   sync.Mutex
	keys map[string]job.ID
	fail error
}

func (k *keyring) Authenticate(_ context.Context, bearer string) (job.Caller, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	client, ok := k.keys[bearer]
	switch {
	case k.fail != nil:
		return job.Caller{}, k.fail
	case !ok:
		return job.Caller{}, job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
	}
	return job.Caller{ClientID: client, KeyID: "key", Scope: job.ScopeAll}, nil
}

func (k *keyring) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// streamServer is a server on a loopback port with a history to stream from.
type streamServer struct {
	t       testing.TB
	history *history
	keys    *keyring
	server  *Server
	address string
	log     *logBuffer
	served  chan error
}

const streamPatience = 60 * time.Second

func newStreamServer(t testing.TB, change ...func(*Config, *Deps)) *streamServer {
	t.Helper()
	th := &streamServer{
		t: t, history: newHistory(), log: &logBuffer{}, served: make(chan error, 1),
		keys: &keyring{keys: map[string]job.ID{goodKey: clientA, otherKey: clientB}},
	}
	th.history.add(clientA, jobID)
	cfg := Config{PublicURL: publicURL}
	deps := Deps{
		Reader: th.history, Events: th.history, Clients: th.keys,
		Limiter:  fakeLimiter{answer: job.Allowance{OK: true, Policy: "minute", Limit: 6000, Remaining: 5999, Reset: 10 * time.Millisecond}},
		Logger:   slog.New(slog.NewJSONHandler(th.log, nil)),
		Registry: prometheus.NewRegistry(), Clock: func() time.Time { return now },
		CursorKey: func(context.Context) ([]byte, error) { return []byte("a key"), nil },
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	th.server = New(cfg, deps)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	th.address = l.Addr().String()
	go func() { th.served <- th.server.Serve(l) }()
	t.Cleanup(func() {
		th.shutdown()
		require.Empty(t, th.history.watchers, "nobody watches any more")
		requireNothingHeld(t, th.server)
		for _, kind := range []string{stream.KindJob, stream.KindClient} {
			require.Zero(t, testutil.ToFloat64(th.server.streams.Metrics.Open.WithLabelValues(kind)))
		}
	})
	return th
}

func (th *streamServer) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), streamPatience)
	defer cancel()
	require.NoError(th.t, th.server.Shutdown(ctx))
}

// closed waits until a stream has ended for a reason for the nth time.
func (th *streamServer) closed(reason stream.Ending, n int) {
	th.t.Helper()
	eventually(th.t, func() bool {
		return testutil.ToFloat64(th.server.streams.Metrics.Closed.WithLabelValues(string(reason))) == float64(n)
	})
}

// reader is a client with a stream, or another answer.
type reader struct {
	t    testing.TB
	conn *net.TCPConn
	in   *bufio.Reader
	*http.Response
	lastID string // of the blocks read
	path   string // of the stream; "": its frames are not checked
}

const (
	jobStream    = "/v1/jobs/01890000-0000-7000-8000-000000000001/events"
	clientStream = "/v1/events"
)

// request writes a request for a stream; headers are name, value, ...
func (th *streamServer) request(method, path string, headers ...string) string {
	text := method + " " + path + " HTTP/1.1\r\nHost: x\r\n"
	given := map[string]string{"Authorization": "Bearer " + goodKey, "Accept": "text/event-stream"}
	for i := 0; i < len(headers); i += 2 {
		given[headers[i]] = headers[i+1]
	}
	for _, name := range slices.Sorted(mapKeys(given)) {
		if given[name] != "" {
			text += name + ": " + given[name] + "\r\n"
		}
	}
	return text + "\r\n"
}

func mapKeys(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// dial opens a connection; every read and write on it has an end.
func (th *streamServer) dial() *net.TCPConn {
	th.t.Helper()
	c, err := net.Dial("tcp", th.address)
	require.NoError(th.t, err)
	th.t.Cleanup(func() { _ = c.Close() })
	require.NoError(th.t, c.SetDeadline(time.Now().Add(streamPatience)))
	return c.(*net.TCPConn)
}

// ask sends a request on a new connection and reads the answer's head.
func (th *streamServer) ask(method, path string, headers ...string) *reader {
	th.t.Helper()
	c := th.dial()
	_, err := io.WriteString(c, th.request(method, path, headers...))
	require.NoError(th.t, err)
	r := th.answer(c, method)
	if r.Header.Get("Content-Type") == mimeEventStream {
		bare, _, _ := strings.Cut(path, "?")
		r.path = bare
		require.NoError(th.t, apitest.New(th.t, docs.OpenAPI).Verify(method, bare, r.Response, nil))
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

// open opens a stream and reads its start.
func (th *streamServer) open(path string, headers ...string) *reader {
	th.t.Helper()
	r := th.ask("GET", path, headers...)
	require.Equal(th.t, 200, r.StatusCode)
	require.Equal(th.t, "text/event-stream", r.Header.Get("Content-Type"))
	b := r.block()
	require.NotZero(th.t, b.retry, "the stream starts with retry")
	return r
}

// problem reads an answer that is a problem.
func (r *reader) problem(code job.Code) *problem {
	r.t.Helper()
	text, err := io.ReadAll(r.in)
	require.NoError(r.t, err)
	require.Equal(r.t, code.Spec().Status, r.StatusCode, string(text))
	var p problem
	require.NoError(r.t, json.Unmarshal(text, &p))
	require.Equal(r.t, code, p.Code)
	return &p
}

// block reads the next block, whatever it is.
func (r *reader) block() block {
	r.t.Helper()
	b, err := readBlock(r.in)
	require.NoError(r.t, err)
	if b.id != "" {
		r.lastID = b.id
	}
	return b
}

// next reads the next event, passing over heartbeats. It must be as documented.
func (r *reader) next() block {
	r.t.Helper()
	require.NoError(r.t, r.conn.SetDeadline(time.Now().Add(streamPatience))) // it bounds a silence, not the stream
	for {
		b := r.block()
		if b.comment {
			continue
		}
		if r.path != "" {
			require.NoError(r.t, apitest.NewStreams(r.t, docs.AsyncAPI).Verify(r.path, b.id, b.event, b.data))
		}
		return b
	}
}

// events reads the given events, by name.
func (r *reader) events(names ...string) []block {
	r.t.Helper()
	blocks := make([]block, len(names))
	for i, name := range names {
		blocks[i] = r.next()
		require.Equal(r.t, name, blocks[i].event)
	}
	return blocks
}

// end reads heartbeats until the stream ends in order.
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

// percentage gives the percentage in a progress block.
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

// hooked are Events with something that happens right before a call.
type hooked struct {
	Events
	watch, read func()
}

func (h hooked) Watch(client, id job.ID) (<-chan job.Notification, func()) {
	if h.watch != nil {
		h.watch()
	}
	return h.Events.Watch(client, id)
}

func (h hooked) JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	if h.read != nil {
		h.read()
	}
	return h.Events.JobEvents(ctx, client, id, after, limit)
}
