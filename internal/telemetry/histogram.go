package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
)

// In a native histogram, the upper limit of a bucket is at most nativeFactor times its lower limit. A histogram that would need more than
// nativeBuckets buckets is reset, but at most once per nativeReset.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
	nativeReset   = time.Hour
)

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: nativeFactor,
		NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: nativeReset,
	}
}

// Upper limits of buckets, in seconds. Quick is for durations of milliseconds, Long is for durations of up to minutes.
var (
	Quick = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	Long  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
)

// Observe observes a duration. If ctx is traced, the observation has the trace id as an exemplar.
func Observe(ctx context.Context, o prometheus.Observer, d time.Duration) {
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() {
		if e, ok := o.(prometheus.ExemplarObserver); ok {
			e.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": s.TraceID().String()})
			return
		}
	}
	o.Observe(d.Seconds())
}
