package apptest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/job"
)

// LogBuffer is a log that can be read while it is written.
type LogBuffer struct {
	mu  sync.Mutex
	Buf bytes.Buffer
}

func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buf.Write(p)
}

// Lines gives the lines whose fields have the given values.
func (l *LogBuffer) Lines(t testing.TB, fields map[string]any) []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []map[string]any
	for line := range strings.Lines(l.Buf.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry))
		matches := true
		for k, v := range fields {
			matches = matches && entry[k] == v
		}
		if matches {
			found = append(found, entry)
		}
	}
	return found
}

// Logged asserts that a transition was logged once, with the fields that section
// 16 and the scenario require.
func (w *World) Logged(task job.Task, action, from, to string) map[string]any {
	w.T.Helper()
	lines := w.Log.Lines(w.T, map[string]any{
		"msg": "job transition", "action": action, "job_id": task.JobID.String(), "current_state": from, "next_state": to,
	})
	require.Len(w.T, lines, 1)
	require.Equal(w.T, "request-1", lines[0]["request_id"])
	require.Equal(w.T, ClientA.String(), lines[0]["client_id"])
	for _, field := range []string{"work_kind", "duration_ms", "expected_outcome"} {
		require.Contains(w.T, lines[0], field)
	}
	return lines[0]
}

// TracingHandler adds the span of the context to each line, as the program's
// logger does.
type TracingHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h TracingHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		r.AddAttrs(slog.String("trace_id", s.TraceID().String()), slog.String("span_id", s.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}
