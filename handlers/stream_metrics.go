package handlers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// ending is why a stream ended: the label of a metric, and an error, so that it
// can be the cause of a context's end.
type ending string

func (e ending) Error() string { return "the stream ended: " + string(e) }

// The reasons for which streams end.
const (
	endOfJob         ending = "end"         // the job's last event is told, or the job was deleted
	endClientGone    ending = "client_gone" // the connection is over
	endStalled       ending = "stalled"     // the client took too little for too long
	endShutdown      ending = "shutdown"
	endStorage       ending = "storage" // storage was away for too long
	endUnauthorized  ending = "unauthorized"
	endInternalError ending = "internal"
)

var endings = []ending{endOfJob, endClientGone, endStalled, endShutdown, endStorage, endUnauthorized, endInternalError}

// The kinds of streams.
const (
	streamOfJob    = "job"
	streamOfClient = "client"
)

type streamMetrics struct {
	open   *prometheus.GaugeVec
	closed *prometheus.CounterVec
	events prometheus.Counter
}

func newStreamMetrics(f telemetry.Factory) *streamMetrics {
	m := &streamMetrics{
		open: f.Gauges("streams_open",
			"Event streams open now, of one job or of all of a client's jobs.", []string{"kind"}, streamOfJob, streamOfClient),
		closed: f.Counters("streams_closed_total", "Event streams that ended, by reason.", []string{"reason"}),
		events: f.Counter("stream_events_sent_total", "Events sent on event streams, progress aside."),
	}
	for _, e := range endings {
		m.closed.WithLabelValues(string(e))
	}
	return m
}
