// Package monitoring sets up what an operator looks at: the logger, the
// metrics registry and the admin listener's pages. What is logged and counted
// is decided where it happens, never here.
package monitoring

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewLogger makes the process' logger: JSON, one object a line, or text for
// people. Client-supplied text cannot break a line in either: both quote it.
func NewLogger(w io.Writer, level slog.Level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format %q: json or text", format)
}

// NewRegistry makes the process' one metrics registry, with the Go runtime's
// and the process' own metrics and the version of the program.
func NewRegistry(version, role string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forgerun_build_info", Help: "Always 1; the labels say what runs here.",
		ConstLabels: prometheus.Labels{"version": version, "role": role},
	})
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
