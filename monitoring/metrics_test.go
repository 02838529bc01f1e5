package monitoring

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

const someTraceID = "4bf92f3577b34da6a3ce929d0e0e4736"

func scraped(t *testing.T) Admin {
	t.Helper()
	a := newAdmin(adminToken, true)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "some_seconds", Help: "Some.", Buckets: []float64{.1, 1}, NativeHistogramBucketFactor: 1.1,
	})
	a.Registry.MustRegister(h)
	h.(prometheus.ExemplarObserver).ObserveWithExemplar(.5, prometheus.Labels{"trace_id": someTraceID})
	return a
}

func accept(header string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Accept", header) }
}

func TestMetricsAsTextAndOpenMetrics(t *testing.T) {
	t.Parallel()
	h := scraped(t).Handler()
	for _, header := range []string{"", "nonsense;;", "text/plain;version=0.0.4"} {
		w := get(h, "/metrics", accept(header))
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families := must(parser.TextToMetricFamilies(w.Body))(t)
		require.Contains(t, families, "go_goroutines")
		require.Contains(t, families, "process_open_fds")
		info := families["forgerun_build_info"].GetMetric()[0]
		require.Equal(t, []string{"api", "v1"}, []string{info.GetLabel()[0].GetValue(), info.GetLabel()[1].GetValue()})
	}
	w := get(h, "/metrics", accept("application/openmetrics-text;version=1.0.0"))
	require.Contains(t, w.Header().Get("Content-Type"), "application/openmetrics-text")
	require.Regexp(t, `some_seconds_bucket\{le="1.0"\} 1 # \{trace_id="`+someTraceID+`"\} 0.5`, w.Body.String())
}

func TestConcurrentScrapesShareOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := scraped(t)
		var calls atomic.Int32
		release := make(chan struct{})
		a.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "waiting"}, func() float64 {
			calls.Add(1)
			<-release
			return 0
		}))
		h := a.Handler()
		codes := make(chan int, scrapesAtOnce)
		for range scrapesAtOnce {
			go func() { codes <- get(h, "/metrics", nil).Code }()
		}
		synctest.Wait()
		w := get(h, "/metrics", nil)
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), fmt.Sprint(scrapesAtOnce))
		require.Equal(t, http.StatusOK, get(h, "/healthz", nil).Code)
		close(release)
		for range scrapesAtOnce {
			require.Equal(t, http.StatusOK, <-codes)
		}
		require.EqualValues(t, 1, calls.Load())
	})
}
