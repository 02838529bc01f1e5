package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
)

// shortFormat is the format of logs for people who watch a process.
const shortFormat = "short"

// newLogger makes the logger of a process.
func (c *Config) newLogger(w io.Writer) (*slog.Logger, error) {
	if c.LogFormat == shortFormat {
		return slog.New(&shortHandler{out: &lineWriter{w: w}, style: c.Screen, level: c.LogLevel}), nil
	}
	return monitoring.NewLogger(w, c.LogLevel, c.LogFormat)
}

// lineWriter writes whole lines, one at a time.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// shortHandler writes a line for each job that ends and for each warning, and nothing else.
type shortHandler struct {
	out   *lineWriter
	style term.Style
	level slog.Level
	attrs []slog.Attr // of With
}

// Enabled makes shortHandler a slog.Handler. The ends of jobs are logged as information.
func (h *shortHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= max(h.level, slog.LevelInfo)
}

// Handle makes shortHandler a slog.Handler.
func (h *shortHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	text := ""
	if r.Level >= slog.LevelWarn {
		text = h.warning(r, flat(attrs))
	} else if text = h.end(r, flat(attrs)); text == "" {
		return nil
	}
	line := h.style.Paint(term.Faint, r.Time.Format("15:04:05.000")) + "  " + text + "\n"
	if h.style.Terminal {
		line = term.ClearLine + line // a line that tells of progress may stand there
	}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, line)
	return err
}

// end is the line of a job that has ended; "" for everything else.
func (h *shortHandler) end(r slog.Record, attrs map[string]string) string {
	state := attrs["next_state"]
	if r.Message != "job transition" || !job.State(state).Final() {
		return ""
	}
	text := fmt.Sprintf("%s  %s  %s", h.style.Paint(term.StateColor(state), fmt.Sprintf("%-9s", state)), attrs["job_id"], attrs["work_kind"])
	if n := attrs["attempt"]; n != "" && n != "1" {
		text += "  attempt " + n
	}
	if detail := attrs["error_message"]; detail != "" {
		text += "  " + term.Line(detail)
	}
	return text
}

// warning is the line of a warning or an error, with its fields. What clients chose of these is quoted.
func (h *shortHandler) warning(r slog.Record, attrs map[string]string) string {
	label := h.style.Paint(term.Warn, "WARN     ")
	if r.Level >= slog.LevelError {
		label = h.style.Paint(term.Bad, "ERROR    ")
	}
	text := label + "  " + term.Line(r.Message)
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if name == "role" || name == "action" || attrs[name] == "" {
			continue
		}
		text += "  " + h.style.Paint(term.Faint, name+"=") + plainly(attrs[name])
	}
	return text
}

func plainly(value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return r == '"' || !unicode.IsPrint(r) || unicode.IsSpace(r) }) {
		return strconv.Quote(value)
	}
	return value
}

// flat gives the fields by their names, those of groups too.
func flat(attrs []slog.Attr) map[string]string {
	all := map[string]string{}
	for _, a := range attrs {
		value := a.Value.Resolve()
		if value.Kind() != slog.KindGroup {
			all[a.Key] = value.String()
			continue
		}
		for name, inner := range flat(value.Group()) {
			if a.Key != "" {
				name = a.Key + "." + name
			}
			all[name] = inner
		}
	}
	return all
}

// WithAttrs makes shortHandler a slog.Handler.
func (h *shortHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.attrs = slices.Concat(h.attrs, attrs)
	return &more
}

// WithGroup makes shortHandler a slog.Handler. Its lines have no groups.
func (h *shortHandler) WithGroup(string) slog.Handler { return h }
