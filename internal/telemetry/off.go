package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Off is a registry for metrics that cost nothing and tell nothing: what
// counting costs is measured against it.
var Off prometheus.Registerer = offRegistry{}

type offRegistry struct{}

func (offRegistry) Register(prometheus.Collector) error  { return nil }
func (offRegistry) MustRegister(...prometheus.Collector) {}
func (offRegistry) Unregister(prometheus.Collector) bool { return false }

// The metrics themselves. Nothing ever asks them for their values.
type (
	offCounter   struct{ prometheus.Counter }
	offGauge     struct{ prometheus.Gauge }
	offHistogram struct{ prometheus.Histogram }
)

func (offCounter) Inc()        {}
func (offCounter) Add(float64) {}

func (offGauge) Inc()              {}
func (offGauge) Dec()              {}
func (offGauge) Add(float64)       {}
func (offGauge) Sub(float64)       {}
func (offGauge) Set(float64)       {}
func (offGauge) SetToCurrentTime() {}

func (offHistogram) Observe(float64)                                {}
func (offHistogram) ObserveWithExemplar(float64, prometheus.Labels) {}

func offVec(name, help string, labels []string, m prometheus.Metric) *prometheus.MetricVec {
	return prometheus.NewMetricVec(prometheus.NewDesc(name, help, labels, nil), func(...string) prometheus.Metric { return m })
}
