package judge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/servicetime"
)

// RunContext is what is known of a run beside its facts.
type RunContext struct {
	Run     string // correlation ids are {Run}.{ticket}
	Tickets int64  // tickets are numbered from 1 to this

	TimeScale  *float64      // of the service; nil: unknown, durations are not compared with it
	MaxRuntime time.Duration // execution limit of the service before the time scale; 0: unknown
	KeyWindow  time.Duration // for how long the service keeps an idempotency key; 0: 24 h

	MaxAttempts   int // of each job: 1 and the retries that the service allows; 0: unknown
	DeliveryTries int // of a delivery: 1 and the retries that the service makes; 0: unknown, at least 2

	// Chaos: faults were injected. Killed: worker processes died, hung or were
	// shut down, so attempts may be lost to RFA_EXEC_WORKER_UNAVAILABLE.
	Chaos, Killed bool
	// DeliveryOverdue is by how much the next attempt of a delivery may be late at
	// the end.
	DeliveryOverdue time.Duration
	// Counters: all processes of the service lived from the first row of the
	// database to the end, so that their counters must equal the rows.
	Counters bool

	Webhooks  []history.Webhook
	Streams   []Stream
	Collected Collected

	// Moves of the service's clock, as they were seen during the run. Those of the rows replace them.
	Moves servicetime.Moves

	across     *across                        // set by Judge
	latestSeen func(real time.Time) time.Time // of the moves, set by Judge
}

// Stream is the reader of a tenant's event stream.
type Stream struct {
	Tenant int
	// Whole: it was connected before the tenant's first submission and was read
	// until the end, so that each event must be on it.
	Whole bool
}

const (
	clockSlack = time.Second      // by how much the simulator's and Postgres' clocks may differ
	maxOverdue = 30 * time.Second // by how much a task in the queue may be late at the end
	moveLag    = 10 * time.Second // how long a move of the clock may take until everybody follows it
)

// limit is the service's scaled execution limit, never below 1 s; 0: unknown.
func (run *RunContext) limit() time.Duration {
	if run.MaxRuntime <= 0 || run.TimeScale == nil {
		return 0
	}
	return max(time.Second, scaled(run.MaxRuntime, *run.TimeScale))
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) * scale) }

// complete reports whether all that a source has to say is in the history.
func (run *RunContext) complete(s Source) bool {
	_, missing := run.Collected.Missing[s]
	return !missing && run.Collected.Asked[s]
}

// asOf is a time, by Postgres' clock, that a fact was certainly not read before.
func (run *RunContext) asOf(f *history.Fact) time.Time {
	at := cmp.Or(f.Sent, f.At)
	if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
		return at
	}
	return at.Add(-clockSlack)
}

// webhook is what a fact's delivery goes to, nil for a callback and the unknown.
func (run *RunContext) webhook(f *history.Fact) *history.Webhook {
	for i := range run.Webhooks {
		if w := &run.Webhooks[i]; f.Delivery != nil && w.ID == f.Delivery.Webhook {
			return w
		}
	}
	return nil
}

// serviceTime is the service's time when Postgres' clock shows real. Without a clock that was moved both are the same.
func (run *RunContext) serviceTime(real time.Time) time.Time { return run.moves().At(real) }

// latest is the latest time that the service can have shown when the simulator's clock showed at.
func (run *RunContext) latest(at time.Time) time.Time {
	return run.latestSeen(at.Add(clockSlack))
}

func (run *RunContext) moves() servicetime.Moves {
	if run.complete(Rows) {
		return run.Collected.Moves
	}
	return run.Moves
}

// Source is where facts at the end come from.
type Source string

// The sources.
const (
	Lists   Source = "job lists"
	Reports Source = "reports"
	Rows    Source = "rows"
	Queue   Source = "queue"
	Metrics Source = "metrics"
)

// Collected is what was found at the end beside facts, and what could not be read.
type Collected struct {
	Asked   map[Source]bool   // sources that were asked
	Missing map[Source]string // why a source said nothing, or not everything

	// Webhooks says, by id, when a webhook was disabled, changed or deleted: from
	// then on it need not get each event.
	Webhooks map[string]time.Time
	Moves    servicetime.Moves // of the service's clock, as the rows have them
	Rules    []string          // invariants of the queries over rows; their findings are facts
	Measured []Measure         // metrics with what the rows say of the same
}

// Measure is a metric, of all processes, and the number of rows that it must equal.
type Measure struct {
	Name         string
	Metric, Rows float64
	Counter      bool // counts from the start of its process
}

// jobFacts is all that is known of one job, sorted by who says it.
type jobFacts struct {
	id     string
	facts  []history.Fact
	byKind map[history.Kind][]*history.Fact // without those of incomplete sources

	tenant     int                 // whose job it is; -1: unknown
	ticket     int64               // 0: unknown
	submission *history.Submission // nil when its answer did not name the job

	row    *history.Job  // as stored, nil for none
	job    *history.Job  // as it was at the end: as stored, else as listed; nil for none
	source *history.Fact // of job
	kind   string        // work kind; "": unknown

	log         []history.Event          // by seq, of the rows, else of the latest report of the API
	logComplete bool                     // log goes to the end of the job
	events      map[string]history.Event // of log, by id
	steps       []history.Event          // the transitions of log: the job is in the state from one to the next

	reports  map[int]*history.Report // by attempt, of the rows, else of the API
	attempts []int                   // that have a report, in order
}

// sourceOf says which facts come from what was read at the end. Of a source that
// broke off nothing is used: half of what it says would be misleading.
var sourceOf = map[history.Kind]Source{
	history.ListedJob: Lists, history.APIReport: Reports, history.APIDelivery: Reports, history.QueuedTask: Queue,
	history.StoredJob: Rows, history.StoredEvent: Rows, history.StoredReport: Rows, history.StoredDeliver: Rows, history.Contradiction: Rows,
}

func newJobFacts(id string, facts []history.Fact, run *RunContext) *jobFacts {
	j := &jobFacts{
		id: id, facts: facts, tenant: -1, byKind: map[history.Kind][]*history.Fact{}, reports: map[int]*history.Report{},
	}
	for i := range facts {
		f := &facts[i]
		if source, ok := sourceOf[f.Kind]; !ok || run.complete(source) {
			j.byKind[f.Kind] = append(j.byKind[f.Kind], f)
		}
	}
	j.findOwner(run.Run)
	j.findJob()
	j.findReports()
	j.findLog(run)
	j.events = make(map[string]history.Event, len(j.log))
	for _, e := range j.log {
		j.events[e.ID] = e
		if e.Next != "" {
			j.steps = append(j.steps, e)
		}
	}
	return j
}

// findOwner finds whose submission was answered with the job, else the rows' owner,
// else whose list it is on.
func (j *jobFacts) findOwner(run string) {
	for _, kind := range []history.Kind{history.Submitted, history.StoredJob, history.ListedJob} {
		for _, f := range j.byKind[kind] {
			if j.tenant < 0 {
				j.tenant = f.Tenant
			}
			j.ticket = cmp.Or(j.ticket, f.Ticket)
			if j.ticket == 0 && f.Shown != nil {
				j.ticket, _ = TicketOf(run, f.Shown.CorrelationID)
			}
		}
	}
	for _, f := range j.byKind[history.Submitted] {
		if f.Submission != nil && f.Tenant == j.tenant {
			j.submission = f.Submission
			return
		}
	}
}

func (j *jobFacts) findJob() {
	for _, f := range j.byKind[history.StoredJob] {
		if f.Shown != nil {
			j.row, j.source = f.Shown, f
		}
	}
	for _, f := range j.byKind[history.ListedJob] {
		if j.source == nil && f.Shown != nil && f.Tenant == j.tenant {
			j.source = f
		}
	}
	if j.source != nil {
		j.job, j.kind = j.source.Shown, j.source.Shown.WorkKind
	}
}

func (j *jobFacts) findReports() {
	kind := history.StoredReport
	if j.row == nil {
		kind = history.APIReport
	}
	for _, f := range j.byKind[kind] {
		if f.Report != nil {
			j.reports[f.Report.Attempt] = f.Report
		}
	}
	j.attempts = slices.Sorted(maps.Keys(j.reports))
}

func (j *jobFacts) findLog(run *RunContext) {
	if run.complete(Rows) {
		for _, f := range j.byKind[history.StoredEvent] {
			j.log = append(j.log, *f.Event)
		}
		slices.SortStableFunc(j.log, func(a, b history.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		j.logComplete = true
		return
	}
	latest := 0
	for _, n := range j.attempts {
		if events := j.reports[n].Events; len(events) > 0 {
			latest, j.log = n, events
		}
	}
	j.logComplete = latest > 0 && j.job != nil && final(j.job.State) && j.job.Attempt == latest
}
