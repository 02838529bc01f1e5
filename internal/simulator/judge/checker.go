package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// inquiry is the judging of one job.
type checker struct {
	*jobFacts
	run *RunContext

	looked     map[string]int64 // invariants that were looked at
	violations []Violation
}

// judgeJob holds all facts of one job against all invariants.
func checkJob(j *jobFacts, run *RunContext) *checker {
	c := &checker{jobFacts: j, run: run, looked: map[string]int64{}}
	c.checkStrange()
	c.checkOwners()
	c.checkIntruders()
	if !c.ofJob() {
		return c
	}
	c.checkExistence()
	c.checkKey()
	c.checkLog()
	c.checkReportedLogs()
	c.checkEnd()
	c.checkReports()
	c.checkRetries()
	c.checkEarly()
	c.checkFence()
	c.checkDurations()
	c.checkCatalogue()
	c.checkLimit()
	c.checkAnswers()
	c.checkLists()
	c.checkStreams()
	c.checkDeliveries()
	c.checkReceived()
	c.checkTasks()
	return c
}

// ofJob reports whether the facts are about a job at all, and one of this run:
// events of batches may be kept under the batch's id.
func (c *checker) ofJob() bool {
	return len(c.byKind[history.Submitted]) > 0 || c.current() != nil || len(c.log) > 0 || len(c.byKind[history.StoredReport]) > 0 ||
		len(c.byKind[history.QueuedTask]) > 0
}

// look counts that an invariant was looked at.
func (c *checker) look(invariant string) { c.looked[invariant]++ }

// must notes a violation unless ok. The text begins with what is wrong.
func (c *checker) must(ok bool, invariant, format string, args ...any) {
	if !ok {
		c.violations = append(c.violations, Violation{
			Invariant: invariant, Job: c.job, Ticket: c.ticket, What: fmt.Sprintf(format, args...),
		})
	}
}
