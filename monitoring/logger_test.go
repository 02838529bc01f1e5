package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func newLog(t *testing.T, format string) (*slog.Logger, func() string) {
	t.Helper()
	var out bytes.Buffer
	log := must(NewLogger(&out, slog.LevelInfo, format))(t)
	return log, func() string {
		defer out.Reset()
		return out.String()
	}
}

func parsed(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
	delete(fields, "time")
	return fields
}

func hostile() string {
	b := strings.Builder{}
	for r := range rune(0xa0) {
		b.WriteRune(r)
	}
	b.WriteString("\u2028\u2029\u202e\ufeff\xff\xc2\x85\"\\ level=ERROR msg=forged")
	return b.String()
}

func TestLoggerKeepsClientTextOnItsLine(t *testing.T) {
	t.Parallel()
	text := hostile()
	for _, format := range []string{"json", "text"} {
		log, line := newLog(t, format)
		for name, write := range map[string]func(){
			"value":    func() { log.Info("hello", "text", text) },
			"key":      func() { log.Info("hello", text, "value") },
			"message":  func() { log.Info(text) },
			"with":     func() { log.With(text, text).Info("hello") },
			"group":    func() { log.WithGroup(text).Info("hello", text, text) },
			"subgroup": func() { log.Info("hello", slog.Group(text, text, text)) },
			"object":   func() { log.Info("hello", "object", map[string]string{text: text}) },
			"bytes":    func() { log.Info("hello", "bytes", []byte(text)) },
		} {
			write()
			got := line()
			require.Equal(t, 1, strings.Count(got, "\n"), "%s: %s", name, got)
			require.True(t, strings.HasSuffix(got, "\n"))
			for _, r := range strings.TrimSuffix(got, "\n") {
				control := r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
				require.False(t, control, "%s in %s: %U in %q", name, format, r, got)
			}
			if format == "json" {
				parsed(t, got)
			}
		}
	}
	log, line := newLog(t, "json")
	text = strings.ToValidUTF8(text, "\ufffd")
	log.Info("hello", text, text)
	require.Equal(t, text, parsed(t, line())[text])
}

func traced() (context.Context, trace.Span) {
	return sdktrace.NewTracerProvider().Tracer("test").Start(context.Background(), "span")
}

func TestLoggerAddsTraceIDs(t *testing.T) {
	t.Parallel()
	ctx, span := traced()
	ids := map[string]any{"trace_id": span.SpanContext().TraceID().String(), "span_id": span.SpanContext().SpanID().String()}
	log, line := newLog(t, "json")
	for name, test := range map[string]struct {
		log  *slog.Logger
		want map[string]any
	}{
		"plain": {log, map[string]any{"n": 1.}},
		"groups and attributes": {
			log.With("a", "b").WithGroup("g").With("c", "d").WithGroup("h").With("e", "f"),
			map[string]any{"a": "b", "g": map[string]any{"c": "d", "h": map[string]any{"e": "f", "n": 1.}}},
		},
		"no group": {log.WithGroup(""), map[string]any{"n": 1.}},
	} {
		test.want["level"], test.want["msg"] = "INFO", "hello"
		test.log.InfoContext(context.Background(), "hello", "n", 1)
		require.Equal(t, test.want, parsed(t, line()), "%s, without a trace", name)
		for k, v := range ids {
			test.want[k] = v
		}
		test.log.LogAttrs(ctx, slog.LevelInfo, "hello", slog.Int("n", 1))
		require.Equal(t, test.want, parsed(t, line()), "%s, with a trace", name)
		test.log.DebugContext(ctx, "below the level")
		require.Empty(t, line())
	}
	// The id of a span that is not recorded is not logged, since it cannot be looked up.
	unrecorded, _ := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test").Start(t.Context(), "span")
	log.InfoContext(unrecorded, "hello")
	require.NotContains(t, parsed(t, line()), "trace_id")
	text, line := newLog(t, "text")
	text.WithGroup("g").InfoContext(ctx, "hello", "n", 1)
	require.Contains(t, line(), " trace_id="+span.SpanContext().TraceID().String())
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

type blockingWriter struct {
	bytes.Buffer
	shut chan struct{}
}

func (v *blockingWriter) Write(b []byte) (int, error) {
	<-v.shut
	return v.Buffer.Write(b)
}

func TestLoggingNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := blockingWriter{shut: make(chan struct{})}
		registry := prometheus.NewRegistry()
		l := NewLines(&out, registry)
		log := must(NewLogger(l, slog.LevelInfo, "json"))(t)
		l.OnDropped(func(lines int) { log.Warn("dropped", "lines", lines) })
		began, text := time.Now(), strings.Repeat("x", 1<<10)
		const lines = 3 * linesLimit >> 10
		for range lines {
			log.Error(text)
		}
		require.Zero(t, time.Since(began))
		require.LessOrEqual(t, len(l.waiting), linesLimit)
		l.Flush()
		require.Equal(t, linesLast, time.Since(began))

		close(out.shut)
		synctest.Wait()
		l.Flush()
		written := out.String()
		families := must(registry.Gather())(t)
		dropped := int(families[0].GetMetric()[0].GetCounter().GetValue())
		require.Contains(t, written, fmt.Sprintf(`"msg":"dropped","lines":%d}`, dropped))
		require.Equal(t, lines+1, strings.Count(written, "\n")+dropped, "each line is written or counted")
	})
}

type failingWriter struct{ works bool }

func (w *failingWriter) Write(lines []byte) (int, error) {
	if w.works {
		return len(lines), nil
	}
	return len(lines) / 2, syscall.EPIPE
}

func TestDroppedLinesAreCounted(t *testing.T) {
	t.Parallel()
	var out failingWriter
	l := NewLines(&out, nil)
	reported := make(chan int, 1)
	l.OnDropped(func(lines int) { reported <- lines })
	for range 10 {
		_, _ = fmt.Fprintln(l, "a line")
	}
	l.Flush()
	require.GreaterOrEqual(t, l.dropped, 5)
	require.Empty(t, reported)
	out.works = true
	_, _ = fmt.Fprintln(l, "the output works again")
	require.Equal(t, l.dropped, <-reported)
}
