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
	"time"
	"unicode"

	"github.com/forgerun/forgerun/app/worker"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
)

const shortFormat = "short"

func (c *Config) newLogger(w io.Writer) (*slog.Logger, error) {
	if c.LogFormat != shortFormat {
		if c.LogFile != nil {
			w = io.MultiWriter(w, c.LogFile)
		}
		return monitoring.NewLogger(w, c.LogLevel, c.LogFormat)
	}
	h := &shortHandler{out: &lineWriter{w: w}, style: c.Screen, level: c.LogLevel, all: slog.DiscardHandler}
	if c.LogFile != nil {
		all, err := monitoring.NewLogger(c.LogFile, c.LogLevel, "json")
		if err != nil {
			return nil, err
		}
		h.all = all.Handler()
	}
	return slog.New(h), nil
}

type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// shortHandler passes all records to another handler. It also writes a short line for people about warnings, ended jobs, failed deliveries
// and a shutdown that waits for jobs.
type shortHandler struct {
	out   *lineWriter
	style term.Style
	level slog.Level
	attrs []slog.Attr
	all   slog.Handler
}

func (h *shortHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level
}

func (h *shortHandler) Handle(ctx context.Context, r slog.Record) error {
	if err := h.all.Handle(ctx, r); err != nil {
		return err
	}
	attrs := slices.Clone(h.attrs)
	r.Attrs(func(a slog.Attr) bool { attrs = append(attrs, a); return true })
	text := ""
	if r.Level >= slog.LevelWarn {
		text = h.warning(r, flat(attrs))
	} else if text = h.progress(r.Message, flat(attrs)); text == "" {
		return nil
	}
	line := h.style.Paint(term.Faint, r.Time.Format("15:04:05.000")) + "  " + text + "\n"
	if h.style.Terminal {
		line = h.style.ClearLine() + line
	}
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, line)
	return err
}

func (h *shortHandler) progress(message string, attrs map[string]string) string {
	switch state := attrs["next_state"]; {
	case message == "job transition" && job.State(state).Final():
		return h.line(state, attrs["work_kind"], attrs)
	case message == "delivery attempt" && state == string(job.DeliveryFailed), message == "delivery attempt" && attrs["attempt"] == "1" &&
		state == string(job.DeliveryPending):
		attrs["error_message"] = "delivery: " + attrs["error_message"]
		return h.line(string(job.DeliveryFailed), attrs["event_name"], attrs)
	case message == worker.WaitingMessage:
		grace, _ := strconv.Atoi(attrs["grace_ms"])
		return fmt.Sprintf("waiting for %s to end, up to %v; press Ctrl-C again to stop immediately", count(attrs["jobs"], "job"),
			(time.Duration(grace) * time.Millisecond).Round(time.Second))
	}
	return ""
}

func (h *shortHandler) line(state, what string, attrs map[string]string) string {
	text := fmt.Sprintf("%s  %s  %s", h.style.Paint(term.StateColor(state), fmt.Sprintf("%-9s", state)), attrs["job_id"], what)
	if n := attrs["attempt"]; n != "" && n != "1" {
		text += "  attempt " + n
	}
	if detail := attrs["error_message"]; detail != "" {
		text += "  " + term.Line(detail)
	}
	return text
}

func count(n, of string) string {
	if n == "1" {
		return n + " " + of
	}
	return n + " " + of + "s"
}

// warning formats a warning or error with its attributes. It quotes values if necessary, because some come from clients.
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
		text += "  " + h.style.Paint(term.Faint, name+"=") + quoteIfNeeded(attrs[name])
	}
	return text
}

func quoteIfNeeded(value string) string {
	if strings.ContainsFunc(value, func(r rune) bool { return r == '"' || !unicode.IsPrint(r) || unicode.IsSpace(r) }) {
		return strconv.Quote(value)
	}
	return value
}

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

func (h *shortHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	more := *h
	more.attrs, more.all = slices.Concat(h.attrs, attrs), h.all.WithAttrs(attrs)
	return &more
}

// WithGroup implements slog.Handler. Short lines do not show groups.
func (h *shortHandler) WithGroup(name string) slog.Handler {
	more := *h
	more.all = h.all.WithGroup(name)
	return &more
}
