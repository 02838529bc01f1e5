package stream

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// Ending is the reason why a stream ended. It is used as a metric label. It implements error, so that it can be the cause of a context.
type Ending string

func (e Ending) Error() string { return "the stream ended: " + string(e) }

// Reasons why streams end.
const (
	EndOfJob     Ending = "end"         // the last event of the job was written, or the job was deleted
	ClientGone   Ending = "client_gone" // the connection closed
	Stalled      Ending = "stalled"     // the reader was too slow
	Shutdown     Ending = "shutdown"
	Storage      Ending = "storage" // storage failed for too long
	Unauthorized Ending = "unauthorized"
	Internal     Ending = "internal"
)

// Kinds of streams.
const (
	KindJob    = "job"
	KindClient = "client"
)

// Metrics count streams and their events.
type Metrics struct {
	Open   *prometheus.GaugeVec   // by kind
	Closed *prometheus.CounterVec // by Ending
	Events prometheus.Counter
}

// NewMetrics registers the metrics. The series of all labels start at zero.
func NewMetrics(f telemetry.Factory) *Metrics {
	return &Metrics{
		Open: f.Gauges("streams_open",
			"Event streams open now, of one job or of all of a client's jobs.", []string{"kind"}, KindJob, KindClient),
		Closed: f.Counters("streams_closed_total", "Event streams that ended, by reason.", []string{"reason"}, string(EndOfJob),
			string(ClientGone), string(Stalled), string(Shutdown), string(Storage), string(Unauthorized), string(Internal)),
		Events: f.Counter("stream_events_sent_total", "Events sent on event streams, except progress events."),
	}
}
