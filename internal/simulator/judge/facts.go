package judge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// RunContext has what the judge must know about a run besides the facts.
type RunContext struct {
	Run     string // id of the run; the correlation ids of its jobs are {Run}.{ticket}
	Tickets int64  // number of tickets; they are numbered from 1

	// Settings of the service. Zero means unknown if the comment does not say otherwise.
	TimeScale     *float64
	MaxRuntime    time.Duration // limit of an execution, before the multiplication by TimeScale
	KeyWindow     time.Duration // how long an idempotency key is kept; 0: 24 h
	MaxAttempts   int
	DeliveryTries int // maximum number of attempts of a delivery; 0: unknown, assumed to be at least 2

	Chaos           bool          // faults were injected
	Killed          bool          // workers were killed, paused or shut down, so attempts may fail
	DeliveryOverdue time.Duration // how long the next attempt of a delivery may be overdue at the end of the run
	Counters        bool          // the simulator started all processes and killed none, so counters must equal the numbers of rows

	Webhooks  []history.Webhook
	Streamed  bool // each tenant's event stream was read
	Whole     bool // the streams were read during the whole run, so they contain all events
	Collected Collected
	Moves     history.Moves // moves of the service's clock that the simulator noticed; used only if the rows were not read completely

	across     *across
	latestSeen func(real time.Time) time.Time // highest service time that a process can have used at a real time; set by Judge
}

const (
	clockSlack = time.Second      // largest difference between the simulator's and Postgres' clocks
	maxOverdue = 30 * time.Second // how long a task may be overdue at the end of the run
	moveLag    = 10 * time.Second // longest time until all processes follow a move of the clock
)

// limit returns MaxRuntime times TimeScale, but at least 1 s; 0 if unknown.
func (run *RunContext) limit() time.Duration {
	if run.MaxRuntime <= 0 || run.TimeScale == nil {
		return 0
	}
	return max(time.Second, scaled(run.MaxRuntime, *run.TimeScale))
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(float64(d) * scale) }

func (run *RunContext) complete(s Source) bool {
	_, missing := run.Collected.Missing[s]
	return !missing && run.Collected.Asked[s]
}

// asOf returns the earliest time on Postgres' clock at which the fact may have been true.
func (run *RunContext) asOf(f *history.Fact) time.Time {
	at := cmp.Or(f.Sent, f.At)
	if f.Kind == history.StoredJob || f.Kind == history.StoredDeliver {
		return at
	}
	return at.Add(-clockSlack)
}

func (run *RunContext) webhook(f *history.Fact) *history.Webhook {
	for i := range run.Webhooks {
		if w := &run.Webhooks[i]; f.Delivery != nil && w.ID == f.Delivery.Webhook {
			return w
		}
	}
	return nil
}

func (run *RunContext) serviceTime(real time.Time) time.Time { return run.moves().At(real) }

// latest returns the highest service time of any process when the simulator's clock shows `at`.
func (run *RunContext) latest(at time.Time) time.Time {
	return run.latestSeen(at.Add(clockSlack))
}

func (run *RunContext) moves() history.Moves {
	if run.complete(Rows) {
		return run.Collected.Moves
	}
	return run.Moves
}

// Source is a source of facts that is read at the end of a run.
type Source string

// The sources.
const (
	Lists   Source = "job lists"
	Reports Source = "reports"
	Rows    Source = "rows"
	Queue   Source = "queue"
	Metrics Source = "metrics"
)

// Collected tells which sources were read. It also has data from the sources that is not stored as facts.
type Collected struct {
	Asked   map[Source]bool
	Missing map[Source]string // why a source was not read completely

	Webhooks map[string]time.Time // maps each changed webhook to a time; later events need no delivery to the webhook
	Moves    history.Moves        // moves of the service's clock, from the rows
	Rules    []string             // keys of the invariants that package invariants checked
	Measured []Measure
}

// Measure is the total of a metric over all processes, and the number of rows that it must equal.
type Measure struct {
	Name         string
	Metric, Rows float64
	Counter      bool // the metric is a counter, which starts at 0 in each process
}

type jobFacts struct {
	id     string
	facts  []history.Fact
	byKind map[history.Kind][]*history.Fact // without facts from incomplete sources

	tenant     int                 // owner of the job; -1: unknown
	ticket     int64               // 0: unknown
	submission *history.Submission // nil if no response to a submission has the job's id

	row    *history.Job  // the job as stored; nil if missing
	job    *history.Job  // the field row; without a row, the job in the API's list; otherwise nil
	source *history.Fact // the fact from which the field job was taken
	kind   string        // work kind; "": unknown

	log         []history.Event          // ordered by seq; from the rows or, without rows, from the last attempt's report
	logComplete bool                     // log has all events of the job
	events      map[string]history.Event // events of log, by id
	steps       []history.Event          // events of log that change the state

	reports  map[int]*history.Report // by attempt, from the rows, otherwise from the API
	attempts []int                   // keys of reports, in order
}

// sourceOf maps kinds of facts to the source from which they are read at the end of the run. The facts of an incompletely read source are
// ignored, because a missing fact would look like a violation.
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

// findOwner sets tenant and ticket from the submission, otherwise from the row, otherwise from the API's list.
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

// The states of a job (API contract, section 9).
const (
	created   = "CREATED"
	queued    = "QUEUED"
	assigned  = "ASSIGNED"
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	canceled  = "CANCELED"
)

const (
	nameRetried      = "job.retried"
	nameLeaseExpired = "job.lease_expired"
	nameExhausted    = "job.retries_exhausted"
	nameEmitted      = "event.emitted"
)

// transitions maps each state to its possible next states and their events (API contract, section 9). A new job has the previous state "".
var transitions = map[string]map[string]string{
	"":       {created: "job.created"},
	created:  {queued: "job.queued", canceled: "job.canceled"},
	queued:   {assigned: "job.assigned", canceled: "job.canceled"},
	assigned: {running: "job.running", canceled: "job.canceled", queued: nameLeaseExpired},
	running:  {succeeded: "job.succeeded", failed: "job.failed", canceled: "job.canceled"},
	failed:   {queued: nameRetried},
}

func eventName(from, to string) string { return transitions[from][to] }

// outcomes maps each final state to its outcome (API contract, section 8).
var outcomes = map[string]string{succeeded: "SUCCESS", failed: "FAILED", canceled: "CANCELED"}

func final(state string) bool { return outcomes[state] != "" }

func waiting(state string) bool { return state == created || state == queued }

var jobStatuses = map[string]string{
	"job.created": "ACCEPTED", "job.queued": "ACCEPTED", "job.assigned": "ACCEPTED", nameRetried: "ACCEPTED", nameLeaseExpired: "ACCEPTED",
	"job.running": "PROCESSING", nameEmitted: "PROCESSING",
	"job.succeeded": "COMPLETED", "job.canceled": "CANCELLED", "job.failed": "FAILED", nameExhausted: "FAILED",
}

func statusOf(name, failure string) string {
	status := jobStatuses[name]
	if status == "FAILED" && failure == codeTimeout {
		return "TIMED_OUT"
	}
	return status
}

func endsAttempt(name string) bool {
	return name == "job.succeeded" || name == "job.failed" || name == "job.canceled"
}

func isClientEvent(name string) bool {
	return strings.HasPrefix(name, "batch.") || strings.HasPrefix(name, "webhook.")
}

func subscribed(patterns []string, name string) bool {
	first, _, _ := strings.Cut(name, ".")
	return slices.Contains(patterns, "*") || slices.Contains(patterns, first+".*") || slices.Contains(patterns, name)
}
