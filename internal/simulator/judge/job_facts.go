package judge

import (
	"cmp"
	"maps"
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

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
	ends        map[int]history.Event    // the steps that ended an attempt, by attempt

	reports  map[int]*history.Report // by attempt, of the rows, else of the API
	attempts []int                   // that have a report, in order
}

// sourceOf says which facts come from what was read at the end. Of a source that
// broke off nothing is used: half of what it says would be misleading.
var sourceOf = map[history.Kind]Source{
	history.ListedJob: Lists, history.ToldReport: Reports, history.ToldDelivery: Reports, history.QueuedTask: Queue,
	history.StoredJob: Rows, history.StoredEvent: Rows, history.StoredReport: Rows, history.StoredDeliver: Rows, history.StoredTry: Rows,
}

func newJobFacts(id string, facts []history.Fact, run *RunContext) *jobFacts {
	j := &jobFacts{
		id: id, facts: facts, tenant: -1, byKind: map[history.Kind][]*history.Fact{}, reports: map[int]*history.Report{},
		ends: map[int]history.Event{},
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
		if final(e.Next) {
			j.ends[e.Attempt] = e
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
			if j.ticket == 0 && f.Told != nil {
				j.ticket, _ = TicketOf(run, f.Told.Correlation)
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
		if f.Told != nil {
			j.row, j.source = f.Told, f
		}
	}
	for _, f := range j.byKind[history.ListedJob] {
		if j.source == nil && f.Told != nil && f.Tenant == j.tenant {
			j.source = f
		}
	}
	if j.source != nil {
		j.job, j.kind = j.source.Told, j.source.Told.WorkKind
	}
}

func (j *jobFacts) findReports() {
	kind := history.StoredReport
	if j.row == nil {
		kind = history.ToldReport
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
