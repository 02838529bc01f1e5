package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// Kinds of repairs that the relay of deliveries makes.
const (
	RepairReclaimed = "reclaimed"
	RepairOrphaned  = "orphaned"
	RepairEnqueued  = "enqueued"
)

// RepairStranded labels repairs of jobs and deliveries that were written while Postgres' clock was ahead.
const RepairStranded = "stranded"

// Resumed labels jobs that are queued again after they waited because of a pause or a client's limit.
const Resumed = "resumed"

// Clocks that are checked for sudden changes.
const (
	PostgresClock = "postgres"
	ProcessClock  = "process"
)

// MaintenanceTasks are the periodic tasks of the maintenance.
var MaintenanceTasks = []string{
	"leader", "scheduler", "relay", "rescuer", "batch_completer", "cleaner", "deliveries", "orphans", "outcomes", "backlog",
	"clock", "pauses", "history", "bulk", "erasures", "schedules", "throttle",
}

// Results of a schedule's due time.
const (
	DueRun     = "run"     // a job was submitted
	DueMissed  = "missed"  // no job: the due time was noticed too late, or the submission was refused
	DueSkipped = "skipped" // no job: an earlier run had not ended
)

// VitalTasks are tasks without which jobs or deliveries stop.
var VitalTasks = []string{"scheduler", "relay", "rescuer", "deliveries"}

type maintenanceMetrics struct {
	Leading                      prometheus.Gauge
	blocked                      *prometheus.GaugeVec
	MaintenanceErrors            *prometheus.CounterVec
	rounds                       *prometheus.HistogramVec
	SucceededAt                  *prometheus.GaugeVec
	Repaired, DeliveriesRepaired *prometheus.CounterVec
	LeasesExpired                *prometheus.CounterVec
	OutcomesPublished            prometheus.Counter
	ClockSteps                   *prometheus.CounterVec
	DueTimes                     *prometheus.CounterVec
	RunLateness                  prometheus.Histogram
	Backlog                      backlogGauges
}

func newMaintenanceMetrics(in telemetry.Factory) maintenanceMetrics {
	task, by := []string{"task"}, []string{"by"}
	return maintenanceMetrics{
		Leading: in.Gauge("maintenance_leader", "1 while this process is the leader."),
		blocked: in.Gauges("maintenance_blocked",
			"1 while this process cannot do a task of the leader, so that another process may become the leader.", task,
			VitalTasks...),
		MaintenanceErrors: in.Counters("maintenance_errors_total", "Failed rounds of the leader's tasks.", task, MaintenanceTasks...),
		rounds: in.Histograms("maintenance_round_seconds", "Duration of a round of the leader's tasks.", telemetry.Quick, task,
			MaintenanceTasks...),
		SucceededAt: in.Gauges("maintenance_last_success_timestamp_seconds",
			"Unix time of the latest successful round of a leader's task in this process; 0: never.", task, MaintenanceTasks...),
		Repaired: in.Counters("maintenance_jobs_total", "Jobs and batches that the leader's tasks changed; batch_completer counts batches.", by,
			"scheduler", "relay", "rescuer_requeued", "rescuer_failed", "batch_completer", RepairStranded, Resumed),
		DeliveriesRepaired: in.Counters("maintenance_deliveries_total",
			"Deliveries that the leader repaired: expired claims, missing webhooks, missing tasks or wrong times.", by,
			RepairReclaimed, RepairOrphaned, RepairEnqueued, RepairStranded),
		LeasesExpired: in.Counters("leases_expired_total", "Jobs that lost their worker, by their state at that time.",
			[]string{"state"}, string(job.Assigned), string(job.Running)),
		ClockSteps: in.Counters("clock_steps_total", "Clock changes that the leader detected.",
			[]string{"clock"}, PostgresClock, ProcessClock),
		DueTimes: in.Counters("schedule_due_times_total", "Due times of schedules that have passed, by result.", []string{"result"},
			DueRun, DueMissed, DueSkipped),
		RunLateness: in.Histogram("schedule_run_lateness_seconds", "Time from a run's due time, including jitter, to the creation of its job.",
			telemetry.Quick),
		OutcomesPublished: in.Counter("outcomes_published_total", "Outcomes appended to the outcome stream, repetitions included."),
		Backlog:           newBacklogGauges(in),
	}
}

// Round counts a round of a task.
func (m *maintenanceMetrics) Round(task string, took time.Duration, err error) {
	m.rounds.WithLabelValues(task).Observe(took.Seconds())
	if err != nil {
		m.MaintenanceErrors.WithLabelValues(task).Inc()
		return
	}
	m.SucceededAt.WithLabelValues(task).SetToCurrentTime()
}

// Leads sets whether this process leads.
func (m *maintenanceMetrics) Leads(leading bool) {
	m.Leading.Set(0)
	if leading {
		m.Leading.Set(1)
	}
}

// Blocked sets the metric for a task that this process cannot run.
func (m *maintenanceMetrics) Blocked(task string, blocked bool) {
	m.blocked.WithLabelValues(task).Set(0)
	if blocked {
		m.blocked.WithLabelValues(task).Set(1)
	}
}

// ForgetBacklog sets the backlog metrics to 0, because only the leader counts the backlog.
func (m *maintenanceMetrics) ForgetBacklog() {
	m.Backlog.show(job.Backlog{})
	m.Backlog.takenAt.Set(0)
}

// Counted sets the current backlog.
func (m *maintenanceMetrics) Counted(c job.Backlog) {
	m.Backlog.show(c)
	m.Backlog.takenAt.SetToCurrentTime()
}

type backlogGauges struct {
	Jobs                       *prometheus.GaugeVec
	queueDepth, oldestDue      prometheus.Gauge
	workers, slots             prometheus.Gauge
	deliveries, oldestDelivery prometheus.Gauge
	webhooksDisabled           prometheus.Gauge
	takenAt                    prometheus.Gauge
}

// OpenStates are the non-final states of jobs.
var OpenStates = []job.State{job.Created, job.Queued, job.Assigned, job.Running}

func newBacklogGauges(in telemetry.Factory) backlogGauges {
	states := make([]string, len(OpenStates))
	for i, s := range OpenStates {
		states[i] = string(s)
	}
	const note = " Counted by the leader; 0 in other processes."
	return backlogGauges{
		Jobs:             in.Gauges("jobs_current", "Jobs, by state."+note, []string{"state"}, states...),
		queueDepth:       in.Gauge("job_queue_depth", "Jobs in QUEUED."+note),
		oldestDue:        in.Gauge("job_oldest_due_seconds", "How long the oldest waiting job has been due."+note),
		workers:          in.Gauge("workers_alive", "Workers with a valid lease."+note),
		slots:            in.Gauge("workers_slots", "Jobs that all live workers together can hold at once."+note),
		deliveries:       in.Gauge("webhook_deliveries_pending", "Deliveries that are pending."+note),
		oldestDelivery:   in.Gauge("webhook_oldest_pending_seconds", "How long the oldest pending delivery has been due."+note),
		webhooksDisabled: in.Gauge("webhooks_disabled_current", "Webhooks that the server has disabled."+note),
		takenAt:          in.Gauge("backlog_timestamp_seconds", "Unix time at which this process last counted the backlog; 0: never."),
	}
}

func (g *backlogGauges) show(c job.Backlog) {
	for _, s := range OpenStates {
		g.Jobs.WithLabelValues(string(s)).Set(float64(c.Jobs[s]))
	}
	g.queueDepth.Set(float64(c.Jobs[job.Queued]))
	g.oldestDue.Set(c.OldestDue.Seconds())
	g.workers.Set(float64(c.Workers))
	g.slots.Set(float64(c.Slots))
	g.deliveries.Set(float64(c.Deliveries))
	g.oldestDelivery.Set(c.OldestDelivery.Seconds())
	g.webhooksDisabled.Set(float64(c.DisabledWebhooks))
}
