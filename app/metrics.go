package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Metrics of the use cases, the worker and the maintenance (section 16). Every
// process exposes all of them, from zero. Labels have few values, all of them
// known here: no ids, and nothing that a client wrote.
type Metrics struct {
	idempotencyHits            prometheus.Counter
	batchesCompleted           *prometheus.CounterVec
	fencedWrites, tasksDropped *prometheus.CounterVec
	slots, slotsUsed           prometheus.Gauge
	leasesLost                 prometheus.Counter
	watchers                   *prometheus.GaugeVec
	pokes                      *prometheus.CounterVec
	jobMetrics
	maintenanceMetrics
	deliveryMetrics
}

// NewMetrics makes and registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	in := telemetry.In(r)
	return &Metrics{
		idempotencyHits: in.Counter("idempotency_hits_total", "Submissions answered by an earlier one."),
		batchesCompleted: in.Counters("batches_completed_total", "Batches whose jobs have all ended.", []string{"status"},
			string(job.StatusCompleted), string(job.StatusCompletedWithErrors), string(job.StatusFailed), string(job.StatusCancelled)),
		fencedWrites: in.Counters("fenced_writes_total", "Writes of an old holder that changed nothing, repetitions after a lost answer included.",
			[]string{"operation"}, "finish", "deliver"),
		tasksDropped: in.Counters("tasks_dropped_total", "Queue tasks without a job that waits.", []string{"reason"}, "spent", "unknown"),
		slots:        in.Gauge("worker_slots", "Jobs that this worker process can hold at once."),
		slotsUsed:    in.Gauge("worker_slots_used", "Jobs that this worker process holds."),
		leasesLost:   in.Counter("worker_leases_lost_total", "Times that this worker process lost its lease."),
		watchers:     in.Gauges("watchers", "Streams and requests that wait for news.", []string{"kind"}, "job", "client"),
		pokes: in.Counters("watcher_pokes_total", "Times that a watcher was told to look, by what said so.", []string{"source"},
			pokedByNews, pokedByResume, pokedBySweep),
		jobMetrics:         newJobMetrics(in),
		maintenanceMetrics: newMaintenanceMetrics(in),
		deliveryMetrics:    newDeliveryMetrics(in),
	}
}
