package monitoring

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger makes the process' logger. It writes JSON, one object on each line, or text for people. Both formats quote text from clients.
// Such text cannot begin a new line or control a terminal. If the context has a recorded span, the line contains that span's trace_id and
// span_id.
func NewLogger(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "json":
		return slog.New(&traceHandler{Handler: slog.NewJSONHandler(escaper{w}, options)}), nil
	case "text":
		return slog.New(&traceHandler{Handler: slog.NewTextHandler(w, options)}), nil
	}
	return nil, fmt.Errorf("log format %q must be json or text", format)
}

// traceHandler adds the ids of the context's span to a line, at the top level, outside all groups.
type traceHandler struct {
	slog.Handler
	// `outer` is the handler before the first call of WithGroup. `inner` repeats this call and all later calls of WithGroup and WithAttrs on
	// another handler. Handle adds the ids to `outer` and then calls `inner`. Both fields are nil before the first call of WithGroup.
	outer slog.Handler
	inner func(slog.Handler) slog.Handler
}

func (h *traceHandler) Handle(ctx context.Context, r slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsSampled() {
		return h.Handler.Handle(ctx, r)
	}
	ids := []slog.Attr{slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String())}
	if h.inner != nil {
		return h.inner(h.outer.WithAttrs(ids)).Handle(ctx, r)
	}
	r = r.Clone()
	r.AddAttrs(ids...)
	return h.Handler.Handle(ctx, r)
}

func (h *traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if h.inner == nil {
		return &traceHandler{Handler: h.Handler.WithAttrs(attrs)}
	}
	return h.within(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

func (h *traceHandler) WithGroup(name string) slog.Handler {
	if h.inner == nil {
		plain := func(next slog.Handler) slog.Handler { return next }
		h = &traceHandler{Handler: h.Handler, outer: h.Handler, inner: plain}
	}
	return h.within(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *traceHandler) within(add func(slog.Handler) slog.Handler) *traceHandler {
	before := h.inner
	return &traceHandler{
		Handler: add(h.Handler), outer: h.outer,
		inner: func(next slog.Handler) slog.Handler { return add(before(next)) },
	}
}

// escaper escapes characters that JSON allows, but terminals and line readers interpret: DEL, and U+0080 to U+009F.
type escaper struct{ w io.Writer }

func (e escaper) Write(line []byte) (int, error) {
	escaped := line
	if !isPlain(line) && bytes.ContainsFunc(line, isControl) {
		escaped = nil
		for rest := line; len(rest) > 0; {
			r, size := utf8.DecodeRune(rest)
			if isControl(r) {
				escaped = fmt.Appendf(escaped, `\u%04x`, r)
			} else {
				escaped = append(escaped, rest[:size]...)
			}
			rest = rest[size:]
		}
	}
	if _, err := e.w.Write(escaped); err != nil {
		return 0, err
	}
	return len(line), nil
}

func isControl(r rune) bool { return r >= 0x7f && r <= 0x9f }

func isPlain(line []byte) bool {
	for _, b := range line {
		if b >= 0x7f {
			return false
		}
	}
	return true
}
