package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// inquiry is the judging of one job.
type inquiry struct {
	*dossier
	ground *Ground

	looked     map[string]int64 // invariants that were looked at
	violations []Violation
}

// judgeJob holds all facts of one job against all invariants.
func judgeJob(d *dossier, g *Ground) *inquiry {
	q := &inquiry{dossier: d, ground: g, looked: map[string]int64{}}
	q.judgeStrange()
	q.judgeOwners()
	q.judgeIntruders()
	if !q.ofJob() {
		return q
	}
	q.judgeExistence()
	q.judgeKey()
	q.judgeLog()
	q.judgeReportedLogs()
	q.judgeEnd()
	q.judgeReports()
	q.judgeRetries()
	q.judgeEarly()
	q.judgeFence()
	q.judgeDurations()
	q.judgeCatalogue()
	q.judgeLimit()
	q.judgeAnswers()
	q.judgePolls()
	q.judgeReportDocuments()
	q.judgeDeliveryLogs()
	q.judgeLists()
	q.judgeStreams()
	q.judgeDeliveries()
	q.judgeReceived()
	q.judgeTasks()
	return q
}

// ofJob reports whether the facts are about a job at all, and one of this run:
// events of batches may be kept under the batch's id.
func (q *inquiry) ofJob() bool {
	return len(q.byKind[history.Submitted]) > 0 || q.told() != nil || len(q.log) > 0 || len(q.byKind[history.StoredReport]) > 0 ||
		len(q.byKind[history.QueuedTask]) > 0
}

// look counts that an invariant was looked at.
func (q *inquiry) look(invariant string) { q.looked[invariant]++ }

// must notes a violation unless ok. The text begins with what is wrong.
func (q *inquiry) must(ok bool, invariant, format string, args ...any) {
	if !ok {
		q.violations = append(q.violations, Violation{
			Invariant: invariant, Job: q.job, Ticket: q.ticket, What: fmt.Sprintf(format, args...),
		})
	}
}
