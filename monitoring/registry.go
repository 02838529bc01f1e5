// Package monitoring sets up the logger, the metrics registry, the export of traces and the pages of the admin listener. The other
// packages decide what they log, count and trace.
package monitoring

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes the metrics registry of the process. It contains the metrics of the Go runtime and of the process, and the version
// of the program.
func NewRegistry(version, role string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forgerun_build_info", Help: "Always 1; the labels describe the running program.",
		ConstLabels: prometheus.Labels{"version": version, "role": role},
	})
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
