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

	// Settings of the service; the zero value stands for unknown.
	TimeScale     *float64
	MaxRuntime    time.Duration // execution limit before the time scale
	KeyWindow     time.Duration // how long an idempotency key is kept; 0: 24 h
	MaxAttempts   int           // of a job
	DeliveryTries int           // of a delivery; 0: at least 2

	Chaos           bool          // faults were injected
	Killed          bool          // worker processes died, hung or were shut down, so attempts may be lost
	DeliveryOverdue time.Duration // how late the next attempt of a delivery may be at the end
	Counters        bool          // all processes lived from the first row to the end, so their counters must equal the rows

	Webhooks  []history.Webhook
	Streams   []Stream
	Collected Collected
	Moves     servicetime.Moves // of the service's clock, as seen during the run; used without rows

	across     *across                        // set by Judge
	latestSeen func(real time.Time) time.Time // of the moves, set by Judge
}

// Stream is a reader of a tenant's event stream.
type Stream struct {
	Tenant int
	Whole  bool // it read from before the first submission to the end, so it saw each event
}

const (
	clockSlack = time.Second      // difference between the simulator's and Postgres' clocks
	maxOverdue = 30 * time.Second // delay of a task in the queue at the end
	moveLag    = 10 * time.Second // delay until all processes follow a move of the clock
)

// limit is the service's scaled execution limit, never below 1 s; 0: unknown.
func (run *RunContext) limit() time.Duration {
	if run.MaxRuntime <= 0 || run.TimeScale == nil {
		return 0
	}
	return max(time.Second, scaled(run.MaxRuntime, *run.TimeScale))
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) * scale) }

// complete reports whether the history has everything of a source.
func (run *RunContext) complete(s Source) bool {
	_, missing := run.Collected.Missing[s]
	return !missing && run.Collected.Asked[s]
}

// asOf is a time by Postgres' clock before which a fact was not read.
func (run *RunContext) asOf(f *history.Fact) time.Time {
	at := cmp.Or(f.Sent, f.At)
	if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
		return at
	}
	return at.Add(-clockSlack)
}

// webhook returns the webhook of a fact's delivery, nil for a callback or an unknown one.
func (run *RunContext) webhook(f *history.Fact) *history.Webhook {
	for i := range run.Webhooks {
		if w := &run.Webhooks[i]; f.Delivery != nil && w.ID == f.Delivery.Webhook {
			return w
		}
	}
	return nil
}

// serviceTime is the service's time when Postgres' clock shows real.
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

// Collected is what was read at the end beside facts.
type Collected struct {
	Asked   map[Source]bool   // sources that were asked
	Missing map[Source]string // why a source could not be read, or not to its end

	Webhooks map[string]time.Time // by id, when a webhook was disabled, changed or deleted: from then on it may lack events
	Moves    servicetime.Moves    // of the service's clock, as the rows have them
	Rules    []string             // invariants of the queries over rows; their findings are facts
	Measured []Measure
}

// Measure is a metric, added up over all processes, and the number of rows that it must equal.
type Measure struct {
	Name         string
	Metric, Rows float64
	Counter      bool // counts from the start of its process
}

// jobFacts is all that is known of one job.
type jobFacts struct {
	id     string
	facts  []history.Fact
	byKind map[history.Kind][]*history.Fact // without those of incomplete sources

	tenant     int                 // of the job; -1: unknown
	ticket     int64               // 0: unknown
	submission *history.Submission // nil if its answer did not name the job

	row    *history.Job  // as stored; nil: not there
	job    *history.Job  // as stored, else as listed; nil: not there
	source *history.Fact // of job
	kind   string        // work kind; "": unknown

	log         []history.Event          // by seq, of the rows, else of the latest report of the API
	logComplete bool                     // log goes to the end of the job
	events      map[string]history.Event // of log, by id
	steps       []history.Event          // transitions of log

	reports  map[int]*history.Report // by attempt, of the rows, else of the API
	attempts []int                   // keys of reports, in order
}

// sourceOf says which facts were read at the end. Nothing of an incomplete source is used: half of it would mislead.
var sourceOf = map[history.Kind]Source{
	history.ListedJob: Lists, history.APIReport: Reports, history.APIDelivery: Reports, history.QueuedTask: Queue,
	history.StoredJob: Rows, history.StoredEvent: Rows, history.StoredReport: Rows, history.StoredDeliver: Rows, history.Contradiction: Rows,
}

func newJobFacts(id string, facts []history.Fact, run *RunContext) *jobFacts {
	j := &jobFacts{
		id: id, facts: facts, tenant: -1, byKind: map[history.Kind][]*history.Fact{}, reports: map[int]*history.Report{},
		events: map[string]history.Event{},
	}
	for i := range facts {
		f := &facts[i]
		if source, ok := sourceOf[f.Kind]; !ok || run.complete(source) {
			j.byKind[f.Kind] = append(j.byKind[f.Kind], f)
		}
	}
	j.findOwner(run.Run)
	j.findJob()
	j.findLog(run)
	for _, e := range j.log {
		j.events[e.ID] = e
		if e.Next != "" {
			j.steps = append(j.steps, e)
		}
	}
	return j
}

// findOwner takes the tenant and the ticket from the submission, else from the row, else from the list that has the job.
func (j *jobFacts) findOwner(run string) {
	for _, kind := range []history.Kind{history.Submitted, history.StoredJob, history.ListedJob} {
		for _, f := range j.byKind[kind] {
			if j.tenant < 0 {
				j.tenant = f.Tenant
			}
			if j.ticket = cmp.Or(j.ticket, f.Ticket); j.ticket == 0 && f.Shown != nil {
				j.ticket, _ = TicketOf(run, f.Shown.CorrelationID)
			}
			if f.Submission != nil && f.Tenant == j.tenant && j.submission == nil {
				j.submission = f.Submission
			}
		}
	}
}

func (j *jobFacts) findJob() {
	for _, f := range slices.Concat(j.byKind[history.StoredJob], j.byKind[history.ListedJob]) {
		if f.Shown != nil && j.source == nil && (f.Kind == history.StoredJob || f.Tenant == j.tenant) {
			j.source, j.job, j.kind = f, f.Shown, f.Shown.WorkKind
		}
	}
	if j.source != nil && j.source.Kind == history.StoredJob {
		j.row = j.job
	}
}

func (j *jobFacts) findLog(run *RunContext) {
	told := history.StoredReport
	if j.row == nil {
		told = history.APIReport
	}
	for _, f := range j.byKind[told] {
		if f.Report != nil {
			j.reports[f.Report.Attempt] = f.Report
		}
	}
	j.attempts = slices.Sorted(maps.Keys(j.reports))
	if run.complete(Rows) {
		for _, f := range j.byKind[history.StoredEvent] {
			j.log = append(j.log, *f.Event)
		}
		slices.SortStableFunc(j.log, func(a, b history.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		j.logComplete = true
		return
	}
	for _, n := range j.attempts {
		if events := j.reports[n].Events; len(events) > 0 {
			j.log = events
			j.logComplete = j.job != nil && final(j.job.State) && j.job.Attempt == n
		}
	}
}
