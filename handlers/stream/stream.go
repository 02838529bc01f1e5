// Package stream runs event streams (server-sent events). It follows the events of a job or a client, and writes them and the progress to
// a connection. It also limits the number of streams and waiting requests.
package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

// Engine has the dependencies of all streams. All fields are required.
type Engine struct {
	Heartbeat      time.Duration // interval of heartbeats on an idle stream
	StallTimeout   time.Duration // time limit for writing 8 KiB to a slow reader
	RequestTimeout time.Duration // time limit of each read from storage

	// Watch returns the notifications of a job until `stop` is called. The zero id means all jobs and batches of the client.
	Watch func(client, id job.ID) (notifications <-chan job.Notification, stop func())
	// WatchKey calls the function `changed` when a key may have changed, until `stop` is called.
	WatchKey func(id string, changed func()) (stop func())
	// Recheck returns why the key of a stream is no longer valid, or nil.
	Recheck func(ctx context.Context, authorization [][]byte, client job.ID) error
	// Render returns the data of an event, and RenderProgress the data of progress.
	Render         func(*job.Occurrence) any
	RenderProgress func(id job.ID, attempt int, p *job.Progress) any

	Limiter      *Limiter
	Metrics      *Metrics
	Unauthorized func(job.Code) // counts streams ended by Recheck
	Logger       *slog.Logger
}

// Source reads events in order. Each Read continues after the previous Read.
type Source interface {
	Read(ctx context.Context, limit int) (Page, error)
	// EventID returns the id with which a reader resumes after an event.
	EventID(ctx context.Context, o *job.Occurrence) (string, error)
}

// Page is the result of one read.
type Page struct {
	Events []job.Occurrence
	More   bool // more events may be stored already
	Held   bool // more events exist, but an open transaction holds them back
	Ended  bool // no more events will follow
}

// PageSize is the maximum number of events per read. Storage returns fewer if they are large.
const PageSize = 100

// Stream is an event stream. One goroutine runs it, and a second one detects when the client hangs up. Between events, a stream needs
// little memory, because its request and buffers are freed.
type Stream struct {
	Source
	Client, JobID job.ID // JobID is zero for a stream of all of a client's events
	// Job returns the job. It returns nil if the job's state is newer than the last event that was read.
	Job func(context.Context) *job.Job

	Conn          net.Conn
	Accepted      *conn.Conn // the accepted connection, which Conn may wrap; nil in tests
	Head          []byte     // written first
	First         Page       // written after Head
	Release       func()     // returns the stream's place to the Limiter
	KeyID         string     // "" if the caller used an operator's token
	Authorization [][]byte

	RequestID string
	Span      trace.SpanContext // span of the request, for log lines
	Action    string
	Start     time.Time

	engine     *Engine
	out        writer
	progress   progress
	keyChanged chan struct{} // holds a value if the key must be checked
	nextBeat   time.Time
	noteAt     time.Time // when to write heldNote; zero if no events are held back
	timer      *time.Timer
	lastRead   time.Time
	sent       int
}

// Run serves a stream until it ends, and closes its connection.
func (e *Engine) Run(st *Stream) {
	defer st.Release()
	st.engine, st.progress.pending = e, !st.JobID.IsZero()
	kind := KindClient
	if st.progress.pending {
		kind = KindJob
	}
	open := e.Metrics.Open.WithLabelValues(kind)
	open.Inc()
	defer open.Dec()

	ctx, end := context.WithCancelCause(job.WithKey(trace.ContextWithSpanContext(e.Limiter.ctx, st.Span), st.KeyID))
	context.AfterFunc(ctx, func() { _ = st.Conn.Close() }) // also ends a blocked write
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		st.waitForClose()
		end(ClientGone)
	}()
	stack, err := st.write(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // the context's cause is more specific than err
	}
	if st.Accepted != nil && errors.Is(err, Stalled) {
		st.Accepted.Discard()
	}
	end(err)
	<-gone
	st.logEnd(ctx, err, stack)
}

// A panic ends only this stream. `stack` is the stack trace of the panic, or nil.
func (st *Stream) write(ctx context.Context) (stack []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			stack, err = debug.Stack(), fmt.Errorf("panic: %v", v)
		}
	}()
	st.nextBeat = time.Now().Add(st.engine.Heartbeat)
	st.timer = time.NewTimer(st.engine.Heartbeat)
	defer st.timer.Stop()
	st.out = writer{conn: st.Conn, stall: st.engine.StallTimeout}
	st.keyChanged = make(chan struct{}, 1)
	defer st.engine.WatchKey(st.KeyID, func() {
		select {
		case st.keyChanged <- struct{}{}:
		default:
		}
	})()
	if err := st.recheck(ctx); err != nil { // the key may have changed before WatchKey was called
		return nil, err
	}
	if err := st.out.write(st.Head); err != nil {
		return nil, err
	}
	st.Head = nil
	return nil, st.follow(ctx)
}

// maxInput limits the bytes that a client may send after its request. They are ignored up to the limit; then the stream ends.
const maxInput = 64 << 10

// A blocking read notices at once that the client hangs up. It costs a small goroutine for each stream.
func (st *Stream) waitForClose() {
	var b [128]byte
	for n := 0; n < maxInput; {
		k, err := st.Conn.Read(b[:])
		if err != nil {
			return
		}
		n += k
		if st.Accepted != nil {
			st.Accepted.DrainOnClose(maxInput, time.Second)
		}
	}
}

func (st *Stream) logEnd(ctx context.Context, err error, stack []byte) {
	reason, level := Internal, slog.LevelInfo
	errors.As(err, &reason)
	attrs := []slog.Attr{
		slog.String("reason", string(reason)), slog.Duration("duration", time.Since(st.Start)), slog.Int("events", st.sent),
	}
	switch reason {
	case Unauthorized:
		code := job.CodeOf(err)
		st.engine.Unauthorized(code)
		attrs = append(attrs, errorAttrs(code, err)...)
	case Internal:
		level = slog.LevelError
		attrs = append(attrs, errorAttrs(job.CodeInternal, err)...)
		if stack != nil {
			attrs = append(attrs, slog.String("stack", string(stack)))
		}
	}
	st.engine.Metrics.Closed.WithLabelValues(string(reason)).Inc()
	st.log(ctx, level, "stream ended", attrs...)
}

func (st *Stream) log(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	of := []slog.Attr{
		slog.String("request_id", st.RequestID), slog.String("client_id", st.Client.String()), slog.String("action", st.Action),
	}
	if !st.JobID.IsZero() {
		of = append(of, slog.String("job_id", st.JobID.String()))
	}
	st.engine.Logger.LogAttrs(ctx, level, message, append(of, attrs...)...)
}

func errorAttrs(code job.Code, err error) []slog.Attr {
	return []slog.Attr{slog.String("error_code", string(code)), slog.String("error_message", header.Clip(err.Error()))}
}
