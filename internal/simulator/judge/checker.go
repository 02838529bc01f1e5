package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checker checks one job.
type checker struct {
	*jobFacts
	run *RunContext

	looked     map[string]int64 // how often each invariant was checked
	violations []Violation
}

// rules are the checks of a job that is the run's.
var rules = []func(*checker){
	(*checker).checkExistence, (*checker).checkKey, (*checker).checkLog, (*checker).checkReportedLogs, (*checker).checkEnd,
	(*checker).checkReports, (*checker).checkRetries, (*checker).checkEarly, (*checker).checkFence, (*checker).checkDurations,
	(*checker).checkCatalogue, (*checker).checkLimit, (*checker).checkAnswers, (*checker).checkLists, (*checker).checkStreams,
	(*checker).checkDeliveries, (*checker).checkReceived, (*checker).checkTasks,
}

// checkJob checks all facts of one job against all invariants.
func checkJob(j *jobFacts, run *RunContext) *checker {
	c := &checker{jobFacts: j, run: run, looked: map[string]int64{}}
	c.checkStrange()
	c.checkOwners()
	c.checkIntruders()
	if c.isJob() {
		for _, rule := range rules {
			rule(c)
		}
	}
	return c
}

// isJob reports whether the facts are about a job at all, and one of this run:
// events of batches may be kept under the batch's id.
func (c *checker) isJob() bool {
	return len(c.byKind[history.Submitted]) > 0 || c.job != nil || len(c.log) > 0 || len(c.byKind[history.StoredReport]) > 0 ||
		len(c.byKind[history.QueuedTask]) > 0
}

// look counts that an invariant was checked.
func (c *checker) look(invariant string) { c.looked[invariant]++ }

// must notes a violation unless ok. The text begins with what is wrong.
func (c *checker) must(ok bool, invariant, format string, args ...any) {
	if !ok {
		c.violations = append(c.violations, Violation{Invariant: invariant, Job: c.id, Ticket: c.ticket, What: fmt.Sprintf(format, args...)})
	}
}
