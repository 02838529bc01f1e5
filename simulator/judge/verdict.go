package judge

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/simulator/history"
)

// Bounds of what a verdict holds.
const (
	maxViolations = 1000
	maxHistories  = 100
)

// Verdict is the outcome of a judgement.
type Verdict struct {
	Jobs, Tickets, Facts int64

	// Checked tells how often each invariant was looked at. Skipped tells, for
	// each that was not looked at or only in part, why.
	Checked map[string]int64
	Skipped map[string]string

	Violations     []Violation // at most 1000, the first 100 with histories
	ViolationCount int64
}

// OK reports whether nothing was found. What was not looked at is in Skipped.
func (v *Verdict) OK() bool { return v.ViolationCount == 0 }

// bench gathers what is found by several goroutines.
type bench struct {
	mu      sync.Mutex
	verdict Verdict
	stories int
	tickets tickets
	loose   *looseDeliveries
}

func newBench(g *Ground) *bench {
	return &bench{
		verdict: Verdict{Tickets: g.Tickets, Checked: map[string]int64{}, Skipped: map[string]string{}},
		tickets: newTickets(g.Tickets), loose: newLooseDeliveries(),
	}
}

// add takes what was found about one job; facts are its history.
func (b *bench) add(violations []Violation, looked map[string]int64, facts []history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for invariant, n := range looked {
		b.verdict.Checked[invariant] += n
	}
	var story []history.Fact
	if len(violations) > 0 && b.stories < maxHistories {
		story = inOrder(facts)
	}
	for _, v := range violations {
		b.verdict.ViolationCount++
		if len(b.verdict.Violations) >= maxViolations {
			continue
		}
		if b.stories < maxHistories {
			b.stories++
			v.History = story
		}
		b.verdict.Violations = append(b.verdict.Violations, v)
	}
}

// finish puts violations in order and tells what was not looked at.
func (b *bench) finish(g *Ground) *Verdict {
	order := map[string]int{}
	for i, invariant := range Invariants {
		order[invariant.Key] = i
		if why := skipped(g, invariant.Key, b.verdict.Checked[invariant.Key]); why != "" {
			b.verdict.Skipped[invariant.Key] = why
		}
	}
	slices.SortStableFunc(b.verdict.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(order[x.Invariant], order[y.Invariant]), cmp.Compare(x.Ticket, y.Ticket), cmp.Compare(x.Job, y.Job))
	})
	return &b.verdict
}

// skipped tells why an invariant was not checked, or not with everything.
func skipped(g *Ground, key string, checked int64) string {
	var missing []string
	for _, source := range sources[key] {
		if why, ok := g.Collected.Missing[source]; ok {
			missing = append(missing, string(source)+": "+why)
		} else if !g.Collected.Asked[source] {
			missing = append(missing, string(source)+": not asked for")
		}
	}
	if key == measured && !g.Counters {
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
