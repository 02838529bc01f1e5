// Package stream runs event streams (server-sent events): it follows the events of a job or of a client, writes them to a connection
// and shows progress between them. It also bounds how many streams and waiting requests there are.
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

// Engine is what all streams share. All fields are required.
type Engine struct {
	Heartbeat      time.Duration // between signs of life on an idle stream
	StallTimeout   time.Duration // within which a reader must take 8 KiB
	RequestTimeout time.Duration // of each read from storage

	// Watch receives the notifications of one job, or with the zero id of all of a client's jobs and batches, until stop is called.
	Watch func(client, id job.ID) (notifications <-chan job.Notification, stop func())
	// WatchKey calls changed when a key may have changed, until stop is called.
	WatchKey func(id string, changed func()) (stop func())
	// Recheck returns why the key of a stream is no longer good, nil if it is.
	Recheck func(ctx context.Context, authorization [][]byte, client job.ID) error
	// Render returns the data of an event, and RenderProgress those of progress.
	Render         func(*job.Occurrence) any
	RenderProgress func(id job.ID, attempt int, p *job.Progress) any

	Limiter      *Limiter
	Metrics      *Metrics
	Unauthorized func(job.Code) // counts streams that Recheck has ended
	Logger       *slog.Logger
}

// Source returns events from a position in it, which moves on as they are read.
type Source interface {
	Read(ctx context.Context, limit int) (Page, error)
	// EventID returns the id with which a reader resumes after an event.
	EventID(ctx context.Context, o *job.Occurrence) (string, error)
}

// Page is what was read at once.
type Page struct {
	Events []job.Occurrence
	More   bool // there may be more already
	Held   bool // there is more, but not yet to be read
	Ended  bool // nothing comes after these events
}

// PageSize is how many events a stream reads at once, at most: storage returns fewer where they are large.
const PageSize = 100

// Stream is one event stream. It is run by one goroutine; a second one notices when the client goes. Between events it holds little
// memory: the request it came with, and its buffers, are gone.
type Stream struct {
	Source
	Client, JobID job.ID // JobID is zero for a stream of all of a client's events
	// Job returns the job as of the last event read, nil if it cannot.
	Job func(context.Context) *job.Job

	Conn          net.Conn
	Accepted      *conn.Conn // the connection itself, below what a test bed puts before it; nil: Conn is none of a listener's
	Head          []byte     // what is written first
	First         Page       // what is written next
	Release       func()     // of the limiter
	KeyID         string     // "" for a token
	Authorization [][]byte

	RequestID string
	Span      trace.SpanContext // of the request, for the log
	Action    string
	Start     time.Time

	engine     *Engine
	out        writer
	progress   progress
	keyChanged chan struct{} // holds one value if the key is to be looked at again
	nextBeat   time.Time
	noteAt     time.Time // when the reader is told that events are held; zero: none are
	timer      *time.Timer
	lastRead   time.Time
	sent       int // events
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
	context.AfterFunc(ctx, func() { _ = st.Conn.Close() }) // also wakes a write that is stuck
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		st.waitForClose()
		end(ClientGone)
	}()
	stack, err := st.write(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx) // an error that came of it says less
	}
	if st.Accepted != nil && errors.Is(err, Stalled) {
		st.Accepted.Discard()
	}
	end(err)
	<-gone
	st.logEnd(ctx, err, stack)
}

// write writes the head and follows the source. A panic is the end of this stream only; stack is where it came from.
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
	if err := st.recheck(ctx); err != nil { // what changed before the watch began
		return nil, err
	}
	if err := st.out.write(st.Head); err != nil {
		return nil, err
	}
	st.Head = nil
	return nil, st.follow(ctx)
}

// maxInput is how many bytes a client may send after its request. They are not looked at.
const maxInput = 64 << 10

// waitForClose returns when the client has gone. Blocking in a read costs a small goroutine for each stream, and sees it at once.
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

// logEnd counts and logs the stream's end.
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

// log writes a line that identifies the stream.
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
