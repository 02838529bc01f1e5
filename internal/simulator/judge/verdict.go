package judge

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	maxViolations = 100 // maximum number of listed violations for each invariant
	maxHistories  = 10  // maximum number of violations with a History for each invariant
)

// Verdict is the outcome of a judgement.
type Verdict struct {
	Jobs    int64 `json:"jobs"`
	Tickets int64 `json:"tickets"`
	Facts   int64 `json:"facts"`

	Invariants     []Result    `json:"invariants"`
	Violations     []Violation `json:"violations"` // at most 100 for each invariant
	ViolationCount int64       `json:"violation_count"`
}

// Values of Result.Result.
const (
	Held     = "held"
	Violated = "VIOLATED"
	Skipped  = "skipped"
)

// Result is the result of one invariant.
type Result struct {
	Invariant
	Result     string `json:"result"`
	Checked    int64  `json:"checked"`
	Violations int64  `json:"violations"`        // including violations that are not listed in Verdict.Violations
	Skipped    string `json:"skipped,omitempty"` // reason if the invariant was checked only in part or not at all
}

// Of returns the result of the invariant with the key.
func (v *Verdict) Of(key string) *Result {
	return &v.Invariants[slices.IndexFunc(v.Invariants, func(r Result) bool { return r.Key == key })]
}

type verdictBuilder struct {
	run *RunContext

	mu      sync.Mutex
	verdict Verdict
}

func newVerdictBuilder(run *RunContext) *verdictBuilder {
	b := &verdictBuilder{run: run, verdict: Verdict{Tickets: run.Tickets, Violations: []Violation{}}}
	for _, i := range Invariants {
		b.verdict.Invariants = append(b.verdict.Invariants, Result{Invariant: i, Result: Held})
	}
	return b
}

func (b *verdictBuilder) add(violations []Violation, looked map[string]int64, facts []history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for invariant, n := range looked {
		b.verdict.Of(invariant).Checked += n
	}
	b.verdict.ViolationCount += int64(len(violations))
	for _, v := range violations {
		r := b.verdict.Of(v.Invariant)
		r.Result = Violated
		r.Violations++
		if r.Violations <= maxHistories {
			v.History = lines(facts)
		}
		if v.What, v.Job = term.Masked(v.What), term.Masked(v.Job); r.Violations <= maxViolations {
			b.verdict.Violations = append(b.verdict.Violations, v)
		}
	}
}

func (b *verdictBuilder) finish() *Verdict {
	order := map[string]int{}
	for i := range b.verdict.Invariants {
		r := &b.verdict.Invariants[i]
		order[r.Key] = i
		r.Skipped = term.Masked(b.run.skipped(r))
		if r.Checked == 0 {
			r.Result = Skipped
		}
	}
	slices.SortStableFunc(b.verdict.Violations, func(x, y Violation) int {
		return cmp.Or(cmp.Compare(order[x.Invariant], order[y.Invariant]), cmp.Compare(x.Ticket, y.Ticket), cmp.Compare(x.Job, y.Job))
	})
	return &b.verdict
}

func (run *RunContext) skipped(r *Result) string {
	var missing []string
	for _, source := range r.sources {
		if !run.complete(source) {
			missing = append(missing, string(source)+": "+cmp.Or(run.Collected.Missing[source], "not read in this run"))
		}
	}
	counted := slices.ContainsFunc(run.Collected.Measured, func(m Measure) bool { return m.Counter })
	if r.Key == measured && (!run.Counters || !counted && run.complete(Metrics)) {
		missing = append(missing, "counters: processes ended during the run, or the database had rows before they started")
	}
	switch why := strings.Join(missing, "; "); {
	case r.Checked == 0:
		return "not checked: " + cmp.Or(why, "no job of this run was suitable")
	case why != "":
		return "checked in part; missing: " + why
	}
	return ""
}

// Violation is a violation of an invariant, without secrets.
type Violation struct {
	Invariant string   `json:"invariant"` // Key of the invariant
	What      string   `json:"what"`
	Job       string   `json:"job,omitempty"`     // "" if the violation is not about a job
	Ticket    int64    `json:"ticket,omitempty"`  // 0 if unknown
	History   []string `json:"history,omitempty"` // a line for each fact about the job, oldest first; see maxHistories
}

// String returns the headline and then the history, one fact per line.
func (v Violation) String() string {
	text := v.Headline() + "\n"
	for _, fact := range v.History {
		text += "    " + fact + "\n"
	}
	return text
}

// Headline returns everything but the history, on one line.
func (v Violation) Headline() string {
	text := v.Invariant + ": " + v.What
	if v.Job != "" {
		text += ", job " + v.Job
	}
	if v.Ticket > 0 {
		text += fmt.Sprintf(", submission %d", v.Ticket)
	}
	return text
}

func lines(facts []history.Fact) (all []string) {
	facts = slices.Clone(facts)
	for i := range facts {
		f := &facts[i]
		if f.Kind == history.StoredEvent {
			f.At = f.Event.At
		}
		if f.Submission != nil {
			f.Submission = new(*f.Submission)
			f.Submission.Key, f.Submission.Callback = "", RedactURL(f.Submission.Callback)
			if len(f.Submission.Tries) > 0 {
				f.At = f.Submission.Tries[0].Sent
			}
		}
		if f.Delivery != nil {
			f.Delivery = new(*f.Delivery)
			f.Delivery.URL = RedactURL(f.Delivery.URL)
		}
	}
	slices.SortStableFunc(facts, func(a, b history.Fact) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(deref(a.Event).Seq, deref(b.Event).Seq))
	})
	for _, f := range facts {
		all = append(all, f.At.UTC().Format("15:04:05.000000")+"  "+term.Masked(f.String()))
	}
	return all
}

// RedactURL removes user, password, query and fragment from a URL.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
