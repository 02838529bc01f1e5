package judge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// dossier is all that is known of one job, sorted by who says it.
type jobFacts struct {
	job    string
	facts  []history.Fact
	tenant int   // whose job it is; -1: nobody says so
	ticket int64 // 0: not known

	byKind map[history.Kind][]*history.Fact

	row *history.Job  // as stored, nil for none
	at  *history.Fact // that tells the job as it was at the end: row, else as listed; nil for none

	log         []history.Event // by seq, of the rows, else of the latest report that was told
	logComplete bool            // log goes to the end of the job
	steps       []history.Event // the transitions of log: the job is in the state from one to the next

	reports map[int]*history.Report // by attempt, of the rows, else as told
}

// sourceOf tells which facts come from what was asked for at the end. Of a source
// that broke off nothing is used: half of what it says would be misleading.
var sourceOf = map[history.Kind]Source{
	history.ListedJob: Lists, history.ToldReport: Reports, history.ToldDelivery: Reports, history.QueuedTask: Queue,
	history.StoredJob: Rows, history.StoredEvent: Rows, history.StoredReport: Rows, history.StoredDeliver: Rows, history.StoredTry: Rows,
}

func newJobFacts(job string, facts []history.Fact, run *RunContext) *jobFacts {
	j := &jobFacts{job: job, facts: facts, tenant: -1, byKind: map[history.Kind][]*history.Fact{}}
	for i := range facts {
		f := &facts[i]
		if source, ok := sourceOf[f.Kind]; !ok || run.complete(source) {
			j.byKind[f.Kind] = append(j.byKind[f.Kind], f)
		}
	}
	for _, f := range j.byKind[history.StoredJob] {
		if f.Told != nil {
			j.row, j.at = f.Told, f
		}
	}
	j.findOwner(run.Run)
	for _, f := range j.byKind[history.ListedJob] {
		if j.at == nil && f.Told != nil && f.Tenant == j.tenant {
			j.at = f
		}
	}
	j.findReports()
	j.findLog(run)
	for _, e := range j.log {
		if e.Next != "" {
			j.steps = append(j.steps, e)
		}
	}
	return j
}

// findOwner: whoever was told that the job is his knows best; then the rows say
// it, then the lists.
func (j *jobFacts) findOwner(run string) {
	for _, kind := range []history.Kind{history.Submitted, history.StoredJob, history.ListedJob} {
		for _, f := range j.byKind[kind] {
			if j.tenant < 0 {
				j.tenant = f.Tenant
			}
			if j.ticket == 0 {
				j.ticket = f.Ticket
			}
			if j.ticket == 0 && f.Told != nil {
				j.ticket, _ = TicketOf(run, f.Told.Correlation)
			}
		}
	}
}

// TicketOf reads a correlation id, as the run wrote it.
func TicketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

func (j *jobFacts) findReports() {
	j.reports = map[int]*history.Report{}
	kind := history.StoredReport
	if j.row == nil {
		kind = history.ToldReport
	}
	for _, f := range j.byKind[kind] {
		if f.Report != nil {
			j.reports[f.Report.Attempt] = f.Report
		}
	}
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
	for n, r := range j.reports {
		if n >= latest && len(r.Events) > 0 {
			latest, j.log = n, r.Events
		}
	}
	job := j.current()
	j.logComplete = latest > 0 && job != nil && final(job.State) && job.Attempt == latest
}

// told is the job as it was at the end: as stored, else as listed.
func (j *jobFacts) current() *history.Job {
	if j.at == nil {
		return nil
	}
	return j.at.Told
}

// kind is the job's work kind, "" where nobody tells it.
func (j *jobFacts) kind() string {
	if job := j.current(); job != nil {
		return job.WorkKind
	}
	return ""
}

// submission is what was asked for, nil when the answer told no job.
func (j *jobFacts) submission() *history.Submission {
	for _, f := range j.byKind[history.Submitted] {
		if f.Submission != nil && f.Tenant == j.tenant {
			return f.Submission
		}
	}
	return nil
}

// ends gives the events that ended an attempt, by attempt.
func (j *jobFacts) ends() map[int]history.Event {
	all := map[int]history.Event{}
	for _, s := range j.steps {
		if final(s.Next) {
			all[s.Attempt] = s
		}
	}
	return all
}
