package apptest

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

func (h TracingHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}
