package judge

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// dossier is all that is known of one job, sorted by who says it.
type dossier struct {
	job    string
	facts  []history.Fact
	tenant int   // whose job it is; -1: nobody says so
	ticket int64 // 0: not known

	byKind map[history.Kind][]*history.Fact

	row *history.Job  // as stored, nil for none
	at  *history.Fact // that tells the job as it was at the end: row, else as listed; nil for none

	log   []history.Event // by seq, of the rows, else of the latest report that was told
	whole bool            // log goes to the end of the job
	steps []history.Event // the transitions of log: the job is in the state from one to the next

	reports map[int]*history.Report // by attempt, of the rows, else as told
}

// sourceOf tells which facts come from what was asked for at the end. Of a source
// that broke off nothing is used: half of what it says would be misleading.
var sourceOf = map[history.Kind]Source{
	history.ListedJob: Lists, history.ToldReport: Reports, history.ToldDelivery: Reports, history.QueuedTask: Queue,
	history.StoredJob: Rows, history.StoredEvent: Rows, history.StoredReport: Rows, history.StoredDeliver: Rows, history.StoredTry: Rows,
}

func newDossier(job string, facts []history.Fact, g *Ground) *dossier {
	d := &dossier{job: job, facts: facts, tenant: -1, byKind: map[history.Kind][]*history.Fact{}}
	for i := range facts {
		f := &facts[i]
		if source, ok := sourceOf[f.Kind]; !ok || g.whole(source) {
			d.byKind[f.Kind] = append(d.byKind[f.Kind], f)
		}
	}
	for _, f := range d.byKind[history.StoredJob] {
		if f.Told != nil {
			d.row, d.at = f.Told, f
		}
	}
	d.findOwner(g.Run)
	for _, f := range d.byKind[history.ListedJob] {
		if d.at == nil && f.Told != nil && f.Tenant == d.tenant {
			d.at = f
		}
	}
	d.findReports()
	d.findLog(g)
	for _, e := range d.log {
		if e.Next != "" {
			d.steps = append(d.steps, e)
		}
	}
	return d
}

// findOwner: whoever was told that the job is his knows best; then the rows say
// it, then the lists.
func (d *dossier) findOwner(run string) {
	for _, kind := range []history.Kind{history.Submitted, history.StoredJob, history.ListedJob} {
		for _, f := range d.byKind[kind] {
			if d.tenant < 0 {
				d.tenant = f.Tenant
			}
			if d.ticket == 0 {
				d.ticket = f.Ticket
			}
			if d.ticket == 0 && f.Told != nil {
				d.ticket, _ = ticketOf(run, f.Told.Correlation)
			}
		}
	}
}

// ticketOf reads a correlation id, as the run wrote it.
func ticketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

func (d *dossier) findReports() {
	d.reports = map[int]*history.Report{}
	kind := history.StoredReport
	if d.row == nil {
		kind = history.ToldReport
	}
	for _, f := range d.byKind[kind] {
		if f.Report != nil {
			d.reports[f.Report.Attempt] = f.Report
		}
	}
}

func (d *dossier) findLog(g *Ground) {
	if g.whole(Rows) {
		for _, f := range d.byKind[history.StoredEvent] {
			d.log = append(d.log, *f.Event)
		}
		slices.SortStableFunc(d.log, func(a, b history.Event) int { return cmp.Compare(a.Seq, b.Seq) })
		d.whole = true
		return
	}
	latest := 0
	for n, r := range d.reports {
		if n >= latest && len(r.Events) > 0 {
			latest, d.log = n, r.Events
		}
	}
	told := d.told()
	d.whole = latest > 0 && told != nil && final(told.State) && told.Attempt == latest
}

// told is the job as it was at the end: as stored, else as listed.
func (d *dossier) told() *history.Job {
	if d.at == nil {
		return nil
	}
	return d.at.Told
}

// kind is the job's work kind, "" where nobody tells it.
func (d *dossier) kind() string {
	if told := d.told(); told != nil {
		return told.WorkKind
	}
	return ""
}

// submission is what was asked for, nil when the answer told no job.
func (d *dossier) submission() *history.Submission {
	for _, f := range d.byKind[history.Submitted] {
		if f.Submission != nil && f.Tenant == d.tenant {
			return f.Submission
		}
	}
	return nil
}

// ends gives the events that ended an attempt, by attempt.
func (d *dossier) ends() map[int]history.Event {
	all := map[int]history.Event{}
	for _, s := range d.steps {
		if final(s.Next) {
			all[s.Attempt] = s
		}
	}
	return all
}
