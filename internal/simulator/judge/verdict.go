package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Bounds of what a verdict holds.
const (
	maxViolations   = 1000
	maxHistories    = 100
	listedOfEach    = 20 // violations of an invariant that are always listed
	historiesOfEach = 3  // of these
)

// quota is what a list of bounded length still takes: some of each invariant, and
// whatever comes first in the rest.
type quota struct {
	each, rest int
	taken      map[string]int
}

func newQuota(most, each int) *quota {
	return &quota{each: each, rest: most - each*len(Invariants), taken: map[string]int{}}
}

func (q *quota) take(invariant string) bool {
	if q.taken[invariant]++; q.taken[invariant] <= q.each {
		return true
	}
	q.rest--
	return q.rest >= 0
}

// Verdict is the outcome of a judgement.
type Verdict struct {
	Jobs    int64 `json:"jobs"`
	Tickets int64 `json:"tickets"`
	Facts   int64 `json:"facts"`

	// Checked says how often each invariant was checked, Skipped why one was not,
	// or only in part.
	Checked map[string]int64  `json:"-"`
	Skipped map[string]string `json:"-"`

	// Violations are at most 1000, at most 100 of them with histories, and some of
	// each invariant, however many there are of another one.
	Violations     []Violation      `json:"-"`
	ViolationCount int64            `json:"violation_count"`
	ByInvariant    map[string]int64 `json:"-"` // unlisted violations too
}

// OK reports whether nothing was found. What was not checked is in Skipped.
func (v *Verdict) OK() bool { return v.ViolationCount == 0 }

// verdictBuilder gathers what several goroutines find.
type verdictBuilder struct {
	run *RunContext

	mu           sync.Mutex
	verdict      Verdict
	listed       *quota // violations
	withHistory  *quota // of these
	tickets      ticketFlags
	unattributed map[string]*unattributedDelivery // by id
	pairs        map[string]string                // event and webhook to unattributed delivery
}

func newVerdictBuilder(run *RunContext) *verdictBuilder {
	return &verdictBuilder{
		run:          run,
		verdict:      Verdict{Tickets: run.Tickets, Checked: map[string]int64{}, Skipped: map[string]string{}, ByInvariant: map[string]int64{}},
		listed:       newQuota(maxViolations, listedOfEach),
		withHistory:  newQuota(maxHistories, historiesOfEach),
		tickets:      make(ticketFlags, max(run.Tickets, 0)+1),
		unattributed: map[string]*unattributedDelivery{},
		pairs:        map[string]string{},
	}
}

// add takes what was found about one job; facts are its history.
func (b *verdictBuilder) add(violations []Violation, looked map[string]int64, facts []history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for invariant, n := range looked {
		b.verdict.Checked[invariant] += n
	}
	var sorted []history.Fact
	for _, v := range violations {
		b.countViolation(v.Invariant)
		if !b.listed.take(v.Invariant) {
			continue
		}
		if b.withHistory.take(v.Invariant) {
			if sorted == nil {
				sorted = inOrder(facts)
			}
			v.History = sorted
		}
		b.verdict.Violations = append(b.verdict.Violations, v)
	}
}

// look counts that an invariant was checked.
func (b *verdictBuilder) look(invariant string) { b.add(nil, map[string]int64{invariant: 1}, nil) }

// must notes a violation unless ok, with the fact that shows it, if any.
func (b *verdictBuilder) must(ok bool, f history.Fact, invariant, format string, args ...any) {
	if !ok {
		facts := []history.Fact{f}
		if f.Kind == "" {
			facts = nil
		}
		b.add([]Violation{{Invariant: invariant, Job: f.Job, Ticket: f.Ticket, What: fmt.Sprintf(format, args...)}}, nil, facts)
	}
}

// countViolation counts one, listed or not. The caller holds mu or is alone.
func (b *verdictBuilder) countViolation(invariant string) {
	b.verdict.ViolationCount++
	b.verdict.ByInvariant[invariant]++
}

// finish sorts the violations and says what was not checked.
func (b *verdictBuilder) finish() *Verdict {
	order := map[string]int{}
	for i, invariant := range Invariants {
		order[invariant.Key] = i
		if why := b.run.skipped(invariant, b.verdict.Checked[invariant.Key]); why != "" {
			b.verdict.Skipped[invariant.Key] = why
		}
	}
	slices.SortStableFunc(b.verdict.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(order[x.Invariant], order[y.Invariant]), cmp.Compare(x.Ticket, y.Ticket), cmp.Compare(x.Job, y.Job))
	})
	return &b.verdict
}

// skipped says why an invariant was not checked, or not with everything.
func (run *RunContext) skipped(invariant Invariant, checked int64) string {
	var missing []string
	for _, source := range invariant.sources {
		if why, ok := run.Collected.Missing[source]; ok {
			missing = append(missing, string(source)+": "+why)
		} else if !run.Collected.Asked[source] {
			missing = append(missing, string(source)+": not asked for")
		}
	}
	counted := slices.ContainsFunc(run.Collected.Measured, func(m Measure) bool { return m.Counter })
	if invariant.Key == measured && (!run.Counters || !counted && run.complete(Metrics)) {
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
