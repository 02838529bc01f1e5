package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// all makes one metric of each sort, and gives what changes them.
func all(in telemetry.Factory) (change func()) {
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

func TestMetricsCount(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	all(telemetry.In(registry))()
	got := gather(t, registry)
	require.Equal(t, 3.0, got["one_total"].GetMetric()[0].GetCounter().GetValue())
	require.Equal(t, 2.0, got["some_total"].GetMetric()[1].GetCounter().GetValue())
	require.Equal(t, 4.0, got["level"].GetMetric()[0].GetGauge().GetValue())
	require.InDelta(t, time.Now().Unix(), got["levels"].GetMetric()[2].GetGauge().GetValue(), 60)
	h := got["wait_seconds"].GetMetric()[0].GetHistogram()
	require.Equal(t, 1.0, h.GetSampleSum())
	require.Len(t, h.GetBucket(), len(telemetry.Long))
	require.NotEmpty(t, h.GetPositiveSpan(), "a native histogram as well")
	require.Len(t, got["waits_seconds"].GetMetric()[0].GetHistogram().GetBucket(), len(telemetry.Quick))
}

func TestBucketsRise(t *testing.T) {
	t.Parallel()
	for _, buckets := range [][]float64{telemetry.Quick, telemetry.Long} {
		for i := 1; i < len(buckets); i++ {
			require.Greater(t, buckets[i], buckets[i-1])
		}
	}
}

func TestNamesAreTakenOnce(t *testing.T) {
	t.Parallel()
	in := telemetry.In(prometheus.NewRegistry())
	in.Counter("one_total", "A counter.")
	require.Panics(t, func() { in.Counter("one_total", "A counter.") })
}

func TestWithoutARegistryMetricsCountUnseen(t *testing.T) {
	t.Parallel()
	in := telemetry.In(nil)
	change := all(in)
	require.NotPanics(t, change)
	c := in.Counter("another_total", "A counter.")
	c.Inc()
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	require.Equal(t, 1.0, m.GetCounter().GetValue())
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
	require.Empty(t, exemplars(), "nothing is traced")
	ctx, span := recorded(t)
	telemetry.Observe(ctx, h, 20*time.Millisecond)
	require.Equal(t, []string{"trace_id=" + span.SpanContext().TraceID().String()}, exemplars())
	require.Equal(t, uint64(2), gather(t, registry)["wait_seconds"].GetMetric()[0].GetHistogram().GetSampleCount())
}

// A summary takes no exemplars, and is observed all the same.
func TestObserveWithoutExemplars(t *testing.T) {
	t.Parallel()
	s := prometheus.NewSummary(prometheus.SummaryOpts{Name: "wait_seconds"})
	ctx, _ := recorded(t)
	telemetry.Observe(ctx, s, time.Second)
	var m dto.Metric
	require.NoError(t, s.Write(&m))
	require.Equal(t, 1.0, m.GetSummary().GetSampleSum())
}
