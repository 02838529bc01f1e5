package judge

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Bounds of what a verdict holds.
const (
	maxViolations = 1000
	maxHistories  = 100
	ofEach        = 20 // violations of an invariant that always have room
	ofEachTold    = 3  // of these, with their histories
)

// room is what a list of bounded length still takes: some of each invariant, and
// whatever comes first in the rest.
type quota struct {
	each, rest int
	taken      map[string]int
}

func newQuota(most, each int) *quota {
	return &quota{each: each, rest: most - each*len(Invariants), taken: map[string]int{}}
}

func (r *quota) take(invariant string) bool {
	if r.taken[invariant] < r.each {
		r.taken[invariant]++
		return true
	}
	r.rest--
	return r.rest >= 0
}

// Verdict is the outcome of a judgement.
type Verdict struct {
	Jobs, Tickets, Facts int64

	// Checked tells how often each invariant was looked at. Skipped tells, for
	// each that was not looked at or only in part, why.
	Checked map[string]int64
	Skipped map[string]string

	// Violations are at most 1000, of which at most 100 have histories. Some of
	// each invariant are among them, however many there are of another one.
	Violations     []Violation
	ViolationCount int64
	ByInvariant    map[string]int64 // violations; those that are not in the list too
}

// OK reports whether nothing was found. What was not looked at is in Skipped.
func (v *Verdict) OK() bool { return v.ViolationCount == 0 }

// bench gathers what is found by several goroutines.
type verdictBuilder struct {
	mu           sync.Mutex
	verdict      Verdict
	listed       *quota // violations
	told         *quota // of these, with histories
	tickets      ticketFlags
	unattributed *unattributed
}

func newVerdictBuilder(run *RunContext) *verdictBuilder {
	return &verdictBuilder{
		verdict: Verdict{Tickets: run.Tickets, Checked: map[string]int64{}, Skipped: map[string]string{}, ByInvariant: map[string]int64{}},
		listed:  newQuota(maxViolations, ofEach), told: newQuota(maxHistories, ofEachTold),
		tickets: newTicketFlags(run.Tickets), unattributed: newUnattributed(),
	}
}

// add takes what was found about one job; facts are its history.
func (b *verdictBuilder) add(violations []Violation, looked map[string]int64, facts []history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for invariant, n := range looked {
		b.verdict.Checked[invariant] += n
	}
	var story []history.Fact
	for _, v := range violations {
		b.countLocked(v.Invariant, 1)
		if !b.listed.take(v.Invariant) {
			continue
		}
		if b.told.take(v.Invariant) {
			if story == nil {
				story = inOrder(facts)
			}
			v.History = story
		}
		b.verdict.Violations = append(b.verdict.Violations, v)
	}
}

// count counts violations that are not told one by one.
func (b *verdictBuilder) count(invariant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.countLocked(invariant, n)
}

func (b *verdictBuilder) countLocked(invariant string, n int64) {
	b.verdict.ViolationCount += n
	b.verdict.ByInvariant[invariant] += n
}

// finish puts violations in order and tells what was not looked at.
func (b *verdictBuilder) finish(run *RunContext) *Verdict {
	order := map[string]int{}
	for i, invariant := range Invariants {
		order[invariant.Key] = i
		if why := skipped(run, invariant.Key, b.verdict.Checked[invariant.Key]); why != "" {
			b.verdict.Skipped[invariant.Key] = why
		}
	}
	slices.SortStableFunc(b.verdict.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(order[x.Invariant], order[y.Invariant]), cmp.Compare(x.Ticket, y.Ticket), cmp.Compare(x.Job, y.Job))
	})
	return &b.verdict
}

// skipped tells why an invariant was not checked, or not with everything.
func skipped(run *RunContext, key string, checked int64) string {
	var missing []string
	for _, source := range sources[key] {
		if why, ok := run.Collected.Missing[source]; ok {
			missing = append(missing, string(source)+": "+why)
		} else if !run.Collected.Asked[source] {
			missing = append(missing, string(source)+": not asked for")
		}
	}
	counted := slices.ContainsFunc(run.Collected.Measured, func(m Measure) bool { return m.Counter })
	if key == measured && (!run.Counters || !counted && run.complete(Metrics)) {
		missing = append(missing, "counters: processes ended during the run, or began after the first row")
	}
	switch why := strings.Join(missing, "; "); {
	case checked > 0 && why != "":
		return "checked in part, without " + why
	case checked > 0:
		return ""
	case why != "":
		return "not checked: " + why
	}
	return "not checked: there was nothing of the kind in this run"
}
