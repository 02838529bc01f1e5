package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Sources of notifications to watchers.
const (
	NotifiedByEvent  = "event"
	NotifiedByResume = "resumed"
	NotifiedBySweep  = "sweep"
)

// Metrics of the use cases, the worker and the maintenance (API contract, section 16). Every process exposes all of them, starting at zero.
// Labels have few fixed values. Ids and texts of clients are never label values.
type Metrics struct {
	IdempotencyHits            prometheus.Counter
	BatchesCompleted           *prometheus.CounterVec
	FencedWrites, TasksDropped *prometheus.CounterVec
	Slots, SlotsUsed           prometheus.Gauge
	KindsRefused               prometheus.Gauge
	LeasesLost                 prometheus.Counter
	Watchers                   *prometheus.GaugeVec
	Notifications              *prometheus.CounterVec
	jobMetrics
	maintenanceMetrics
	deliveryMetrics
}

// NewMetrics returns registered metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	in := telemetry.In(r)
	return &Metrics{
		IdempotencyHits: in.Counter("idempotency_hits_total", "Submissions that got the stored response of an earlier submission."),
		BatchesCompleted: in.Counters("batches_completed_total", "Batches whose jobs have all ended.", []string{"status"},
			string(job.StatusCompleted), string(job.StatusCompletedWithErrors), string(job.StatusFailed), string(job.StatusCancelled)),
		FencedWrites: in.Counters("fenced_writes_total",
			"Writes that changed nothing because the writer had lost its claim, including writes repeated after a lost response.",
			[]string{"operation"}, "start", "finish", "deliver"),
		TasksDropped: in.Counters("tasks_dropped_total", "Queue tasks that workers dropped without starting a job.", []string{"reason"},
			"stale", "unknown", "client_limit", "paused"),
		Slots:     in.Gauge("worker_slots", "Jobs that this worker process can hold at once."),
		SlotsUsed: in.Gauge("worker_slots_used", "Jobs that this worker process holds."),
		KindsRefused: in.Gauge("worker_kinds_refused",
			"Work kinds that this worker process does not take, because its machine lacks resources that they need."),
		LeasesLost: in.Counter("worker_leases_lost_total", "Times that this worker process lost its lease."),
		Watchers:   in.Gauges("watchers", "Streams and requests that wait for events.", []string{"kind"}, "job", "client"),
		Notifications: in.Counters("watcher_notifications_total", "Notifications sent to waiting streams and requests, by cause.",
			[]string{"source"},
			NotifiedByEvent, NotifiedByResume, NotifiedBySweep),
		jobMetrics:         newJobMetrics(in),
		maintenanceMetrics: newMaintenanceMetrics(in),
		deliveryMetrics:    newDeliveryMetrics(in),
	}
}
