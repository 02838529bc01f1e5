package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// all makes a metric with each method of Factory.
func all(in telemetry.Factory) (counter prometheus.Counter) {
	counter = in.Counter("one_total", "A counter.")
	in.Counters("some_total", "Counters.", []string{"by"}, "a", "b")
	in.Gauge("level", "A gauge.")
	in.Gauges("levels", "Gauges.", []string{"of"}, "a", "b", "c")
	in.Histogram("wait_seconds", "A histogram.", telemetry.Long)
	in.Histograms("waits_seconds", "Histograms.", telemetry.Quick, []string{"of"}, "a", "b")
	in.GaugeFunc("read", "A gauge that is read.", func() float64 { return 0 })
	in.CounterFunc("read_total", "A counter that is read.", func() float64 { return 0 })
	in.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "own", Help: "A collector of one's own."}))
	return counter
}

func gather(t *testing.T, r *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	byName := map[string]*dto.MetricFamily{}
	for _, f := range families {
		byName[f.GetName()] = f
	}
	return byName
}

func TestObserveAddsTheTraceAsAnExemplar(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	h := telemetry.In(registry).Histogram("wait_seconds", "A histogram.", telemetry.Quick)
	telemetry.Observe(context.Background(), h, 20*time.Millisecond)
	exemplars := func() (found []string) {
		for _, b := range gather(t, registry)["wait_seconds"].GetMetric()[0].GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				found = append(found, l.GetName()+"="+l.GetValue())
			}
		}
		return found
	}
	require.Empty(t, exemplars(), "no trace in the context")
	ctx, span := recorded(t)
	telemetry.Observe(ctx, h, 20*time.Millisecond)
	require.Equal(t, []string{"trace_id=" + span.SpanContext().TraceID().String()}, exemplars())
	observed := gather(t, registry)["wait_seconds"].GetMetric()[0].GetHistogram()
	require.Equal(t, uint64(2), observed.GetSampleCount())
	require.Len(t, observed.GetBucket(), len(telemetry.Quick))
	require.NotEmpty(t, observed.GetPositiveSpan(), "native buckets")

	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "wait_seconds"})
	telemetry.Observe(ctx, summary, time.Second)
	var m dto.Metric
	require.NoError(t, summary.Write(&m))
	require.Equal(t, 1.0, m.GetSummary().GetSampleSum(), "a summary has no exemplars")
}

func TestEachLabelValueStartsFromZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	all(telemetry.In(registry))
	series := map[string]int{}
	for name, f := range gather(t, registry) {
		require.NotEmpty(t, f.GetHelp())
		series[name] = len(f.GetMetric())
		for _, m := range f.GetMetric() {
			require.Zero(t, m.GetCounter().GetValue()+m.GetGauge().GetValue()+float64(m.GetHistogram().GetSampleCount()), name)
		}
	}
	require.Equal(t, map[string]int{
		"one_total": 1, "some_total": 2, "level": 1, "levels": 3, "wait_seconds": 1, "waits_seconds": 2, "read": 1, "read_total": 1, "own": 1,
	}, series)
}

func TestMetricsWithoutRegistry(t *testing.T) {
	t.Parallel()
	c := all(telemetry.In(nil))
	c.Inc()
	require.Equal(t, 1.0, testutil.ToFloat64(c))
}
