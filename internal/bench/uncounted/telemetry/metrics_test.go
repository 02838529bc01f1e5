package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	uncounted "github.com/forgerun/forgerun/internal/bench/uncounted/telemetry"
	"github.com/forgerun/forgerun/internal/telemetry"
)

// all makes one metric of each sort, and gives what changes them.
func all(in uncounted.Factory) (change func()) {
	counter := in.Counter("one_total", "A counter.")
	counters := in.Counters("some_total", "Counters.", []string{"by"}, "a", "b")
	gauge := in.Gauge("level", "A gauge.")
	gauges := in.Gauges("levels", "Gauges.", []string{"of"}, "a", "b", "c")
	histogram := in.Histogram("wait_seconds", "A histogram.", telemetry.Long)
	histograms := in.Histograms("waits_seconds", "Histograms.", telemetry.Quick, []string{"of"}, "a", "b")
	in.GaugeFunc("read", "A gauge that is read.", func() float64 { return 0 })
	in.CounterFunc("read_total", "A counter that is read.", func() float64 { return 0 })
	in.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "own", Help: "A collector of one's own."}))
	return func() {
		counter.Inc()
		counter.Add(2)
		counters.WithLabelValues("a").Inc()
		counters.WithLabelValues("b").Add(2)
		gauge.Set(3)
		gauge.Inc()
		gauge.Dec()
		gauge.Add(2)
		gauge.Sub(1)
		gauges.WithLabelValues("c").SetToCurrentTime()
		telemetry.Observe(context.Background(), histogram, time.Second)
		telemetry.Observe(context.Background(), histograms.WithLabelValues("a"), 2*time.Second)
		histograms.WithLabelValues("b").Observe(3)
	}
}

// Whatever is done to a metric that does nothing is refused nowhere, twice as well, and
// leaves nothing behind.
func TestIdleMetricsRefuseNothing(t *testing.T) {
	t.Parallel()
	for range 2 {
		change := all(uncounted.In(nil))
		require.NotPanics(t, change)
		require.NotPanics(t, change)
	}
	registry := prometheus.NewRegistry()
	all(uncounted.In(registry))()
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}

// unseen is a collector that nobody may ask.
type unseen struct{ prometheus.Collector }

func TestIdleMetricsHaveNoState(t *testing.T) {
	t.Parallel()
	in := uncounted.In(nil)
	counter, gauge, histogram := in.Counter("one_total", ""), in.Gauge("level", ""), in.Histogram("wait_seconds", "", telemetry.Quick)
	counters := in.Counters("some_total", "", []string{"by"}, "a")
	counter.Add(3)
	gauge.Set(3)
	histogram.Observe(3)
	counters.WithLabelValues("a").Add(3)
	require.Equal(t, in.Counter("fresh_total", ""), counter)
	require.Equal(t, in.Gauge("fresh", ""), gauge)
	require.Equal(t, in.Histogram("fresh_seconds", "", telemetry.Long), histogram)
	require.Equal(t, in.Counter("fresh_total", ""), counters.WithLabelValues("a"))
	in.Register(unseen{})
	in.GaugeFunc("read", "", func() float64 { panic("is read") })
}

func TestIdleMetricsTakeEveryCall(t *testing.T) {
	t.Parallel()
	in := uncounted.In(nil)
	ctx, span := sdktrace.NewTracerProvider().Tracer("").Start(t.Context(), "parent")
	defer span.End()
	h := in.Histograms("waits_seconds", "Histograms.", telemetry.Quick, []string{"of", "by"})
	require.NotPanics(t, func() {
		telemetry.Observe(ctx, h.WithLabelValues("a", "b"), time.Second) // with an exemplar
		h.With(prometheus.Labels{"of": "a", "by": "b"}).Observe(1)
		h.Reset()
		in.Gauges("levels", "Gauges.", []string{"of"}).With(prometheus.Labels{"of": "x"}).Set(1)
		in.Counters("some_total", "Counters.", []string{"of"}).DeleteLabelValues("x")
	})
}
