package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
)

// Metrics of the use cases, the worker and the maintenance (section 16). Every
// process exposes all of them, from zero.
type Metrics struct {
	submitted, queued, running, succeeded, failed, canceled *prometheus.CounterVec
	idempotencyHits                                         prometheus.Counter
	retried                                                 *prometheus.CounterVec
	queueDepth, leading, slotsUsed                          prometheus.Gauge
	queueWait, execution                                    *prometheus.HistogramVec
	fencedWrites, tasksDropped                              *prometheus.CounterVec
	leasesLost, epochsRaised                                prometheus.Counter
	repaired                                                *prometheus.CounterVec
	maintenanceErrors                                       *prometheus.CounterVec
	batchesCompleted, pokes                                 *prometheus.CounterVec
	watchers                                                *prometheus.GaugeVec
	deliveryMetrics
}

// NewMetrics makes and registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	kind, in := []string{"work_kind"}, registrar{r}
	kinds := make([]string, 0, len(job.Kinds()))
	for _, k := range job.Kinds() {
		kinds = append(kinds, string(k))
	}
	return &Metrics{
		submitted:       in.counters("jobs_submitted_total", "Jobs accepted.", kind, kinds...),
		queued:          in.counters("jobs_queued_total", "Times that a job entered QUEUED.", kind, kinds...),
		running:         in.counters("jobs_running_total", "Times that a job entered RUNNING.", kind, kinds...),
		succeeded:       in.counters("jobs_succeeded_total", "Jobs that succeeded.", kind, kinds...),
		failed:          in.counters("jobs_failed_total", "Attempts that failed.", kind, kinds...),
		canceled:        in.counters("jobs_canceled_total", "Jobs that were canceled.", kind, kinds...),
		retried:         in.counters("job_retries_total", "Attempts queued after a failed one, by who asked.", []string{"by"}, "client", "auto"),
		idempotencyHits: in.counter("idempotency_hits_total", "Submissions answered by an earlier one."),
		queueDepth:      in.gauge("job_queue_depth", "Jobs in QUEUED."),
		queueWait:       in.histograms("job_queue_wait_seconds", "Time from being due to being claimed.", kind, kinds...),
		execution:       in.histograms("job_execution_seconds", "Time from RUNNING to the attempt's end.", kind, kinds...),
		fencedWrites:    in.counters("fenced_writes_total", "Writes of an old holder that changed nothing, repetitions after a lost answer included.", []string{"operation"}, "start", "finish", "deliver"),
		tasksDropped:    in.counters("tasks_dropped_total", "Queue tasks without a job that waits.", []string{"reason"}, "spent", "unknown"),
		slotsUsed:       in.gauge("worker_slots_used", "Jobs that this worker process holds."),
		leasesLost:      in.counter("worker_leases_lost_total", "Times that this worker process lost its lease."),
		leading:         in.gauge("maintenance_leader", "1 while this process leads the maintenance."),
		epochsRaised:    in.counter("dispatch_epochs_total", "Times that all waiting jobs were dispatched anew."),
		repaired: in.counters("maintenance_jobs_total", "Jobs, and batches by the settler, that maintenance moved on.", []string{"by"},
			"scheduler", "relay", "probe", "rescuer_requeued", "rescuer_failed", "settler"),
		maintenanceErrors: in.counters("maintenance_errors_total", "Failed rounds of maintenance.", []string{"task"},
			"leader", "scheduler", "relay", "probe", "rescuer", "settler", "cleaner", "deliveries", "orphans", "outcomes"),
		batchesCompleted: in.counters("batches_completed_total", "Batches whose jobs have all ended.", []string{"status"},
			string(job.StatusCompleted), string(job.StatusCompletedWithErrors), string(job.StatusFailed), string(job.StatusCancelled)),
		watchers: in.gauges("watchers", "Streams and requests that wait for news.", []string{"kind"}, "job", "client"),
		pokes: in.counters("watcher_pokes_total", "Times that a watcher was told to look, by what said so.", []string{"source"},
			pokedByNews, pokedByResume, pokedBySweep),
		deliveryMetrics: newDeliveryMetrics(in),
	}
}

// entered counts a job's entry into a state.
func (m *Metrics) entered(s job.State, k job.Kind) {
	switch s {
	case job.Queued:
		m.queued.WithLabelValues(string(k)).Inc()
	case job.Running:
		m.running.WithLabelValues(string(k)).Inc()
	case job.Succeeded:
		m.succeeded.WithLabelValues(string(k)).Inc()
	case job.Failed:
		m.failed.WithLabelValues(string(k)).Inc()
	case job.Canceled:
		m.canceled.WithLabelValues(string(k)).Inc()
	case job.Created, job.Assigned:
	}
}

// ended counts the end of an attempt, and the automatic retry that came with
// it.
func (m *Metrics) ended(s job.State, k job.Kind, done job.Finished) {
	m.entered(s, k)
	m.execution.WithLabelValues(string(k)).Observe(done.Duration.Seconds())
	if done.Next != nil {
		m.entered(job.Queued, k)
		m.retried.WithLabelValues("auto").Inc()
	}
}
