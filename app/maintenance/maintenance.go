// Package maintenance runs periodic tasks in the process that holds the leader's lease. For example, they queue due jobs, replace lost
// tasks and requeue jobs of dead workers.
package maintenance

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/rescue"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Queue has the tasks of jobs and deliveries, and the stream of outcomes. Methods with an error result wait for Redis.
type Queue interface {
	delivery.Queue
	// Ensure enqueues missing tasks of jobs, and returns their number.
	Ensure(ctx context.Context, tasks []job.Task) (made int, err error)
	// Mend repairs the queue's keys, such as a key of the wrong type.
	Mend(ctx context.Context) error
	// AppendOutcomes appends entries to a stream in order. `before` is the id of the entry before the first new entry, or "". `last` is the id
	// of the last new entry.
	AppendOutcomes(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) (before, last string, err error)
	// LastOutcome returns the id of the stream's last entry, or "".
	LastOutcome(ctx context.Context, stream string) (last string, err error)
}

// Intervals of the maintenance.
const (
	SchedulerInterval = 200 * time.Millisecond
	relayInterval     = 500 * time.Millisecond
	RescuerInterval   = time.Second
	completerInterval = 3 * time.Second
	cleanerInterval   = 30 * time.Second
	deliveryInterval  = 500 * time.Millisecond
	orphanInterval    = 3 * time.Second
	publisherInterval = 200 * time.Millisecond
	bulkInterval      = 250 * time.Millisecond
	erasureInterval   = 500 * time.Millisecond
	backlogInterval   = 5 * time.Second
)

// Maintenance runs in every process, but works only in the one that holds the leader's lease. Each statement checks the state of its
// rows, so two leaders at once do no harm.
type Maintenance struct {
	Deps

	leader        *leader
	rescuer       *rescue.Rescuer
	relay         *relay
	clocks        clockWatch
	completeAfter job.ID // the last batch that completeBatches checked
}

// Deps are the dependencies of Maintenance.
type Deps struct {
	Store     *repo.Store
	Queue     app.Queue // for events
	Tasks     Queue
	Completer *batches.Completer
	Backoff   job.Backoff
	Clock     *clock.Clock // synchronized with Postgres before the first round; nil: the machine's clock

	ClientMaxRunning int    // limit of one client's ASSIGNED and RUNNING jobs; 0: none
	OutcomeStream    string // name of the stream; "": outcomes are not published
	PublicURL        string // base URL of the problem types in the stream

	Bulk, Erasures, Schedules Round
	SchedulesDue              func() <-chan struct{} // a value in the returned channel starts a round of Schedules

	Metrics *app.Metrics
	Tracer  trace.Tracer // nil: rescues are not traced
	Log     *slog.Logger
}

// New returns the maintenance of a process.
func New(d Deps) *Maintenance {
	m := &Maintenance{Deps: d, clocks: clockWatch{began: time.Now()}}
	m.relay = &relay{store: d.Store, queue: d.Tasks, metrics: d.Metrics, clock: d.Clock}
	m.rescuer = &rescue.Rescuer{
		Store: d.Store, Queue: d.Queue, Completer: d.Completer, Backoff: d.Backoff, Metrics: d.Metrics, Tracer: d.Tracer, Log: d.Log,
		OfDead: true,
	}
	m.leader = newLeader(d.Store.Lead, d.Store.Resign, d.Metrics, d.Log)
	m.leader.tasks = m.tasks()
	return m
}

func (m *Maintenance) tasks() []*task {
	deliveries := delivery.NewRelay(m.Store, m.Tasks, m.Clock, m.Metrics, m.Log)
	pauses := &pauseSweep{store: m.Store, relay: m.relay}
	all := []*task{
		{name: "scheduler", interval: SchedulerInterval, run: m.schedule},
		{name: "relay", interval: relayInterval, wake: m.Clock.Changed, run: m.relay.round},
		{name: "rescuer", interval: RescuerInterval, run: m.rescue},
		{name: "deliveries", interval: deliveryInterval, run: deliveries.Round},
		{name: "orphans", interval: orphanInterval, run: deliveries.FailOrphans},
		{name: "batch_completer", interval: completerInterval, run: m.completeBatches},
		{name: "cleaner", interval: cleanerInterval, run: m.clean},
		{name: "backlog", interval: backlogInterval, wake: func() <-chan struct{} { return m.leader.elected }, run: m.countBacklog},
		{name: "clock", interval: clockInterval, run: m.watchClocks},
		{name: "history", interval: historyInterval, run: m.writeHistory},
		{name: "throttle", interval: m.throttleInterval(), run: m.resumeThrottled},
		{name: "pauses", interval: pauseInterval, run: pauses.round},
		{name: "bulk", interval: bulkInterval, run: m.Bulk},
		{name: "erasures", interval: erasureInterval, run: m.Erasures},
		{name: "schedules", interval: SchedulerInterval, wake: m.SchedulesDue, run: m.Schedules},
	}
	if m.OutcomeStream != "" {
		all = append(all, &task{name: "outcomes", interval: publisherInterval, run: m.newPublisher().round})
	}
	for _, t := range all {
		t.vital = slices.Contains(app.VitalTasks, t.name)
	}
	return all
}

// Run works until ctx ends, then releases the leader's lease.
func (m *Maintenance) Run(ctx context.Context) { m.leader.run(ctx) }
