package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	maxViolations = 100 // listed violations of each invariant
	maxHistories  = 10  // of these with the history of the job
)

// Verdict is the outcome of a judgement.
type Verdict struct {
	Jobs    int64 `json:"jobs"`
	Tickets int64 `json:"tickets"`
	Facts   int64 `json:"facts"`

	Checked map[string]int64  `json:"-"` // number of checks, by invariant
	Skipped map[string]string `json:"-"` // why an invariant was not checked completely

	Violations     []Violation      `json:"violations"` // the first of each invariant
	ViolationCount int64            `json:"violation_count"`
	ByInvariant    map[string]int64 `json:"-"` // number of violations, including unlisted ones
}

// Results of an invariant.
const (
	Held     = "held"
	Violated = "VIOLATED"
	Skipped  = "skipped"
)

// Result is the result of one invariant.
type Result struct {
	Key        string `json:"key"`
	Title      string `json:"title"`
	Result     string `json:"result"`
	Checked    int64  `json:"checked"`
	Violations int64  `json:"violations"`
	Skipped    string `json:"skipped,omitempty"` // why it was not checked completely
}

// Results returns the results of all invariants.
func (v *Verdict) Results() (all []Result) {
	for _, i := range Invariants {
		r := Result{i.Key, i.Title, Held, v.Checked[i.Key], v.ByInvariant[i.Key], term.Masked(v.Skipped[i.Key])}
		switch {
		case r.Violations > 0:
			r.Result = Violated
		case r.Checked == 0:
			r.Result, r.Skipped = Skipped, cmp.Or(r.Skipped, "there was nothing to check")
		}
		all = append(all, r)
	}
	return all
}

// OK reports whether there are no violations. Skipped has the unchecked invariants.
func (v *Verdict) OK() bool { return v.ViolationCount == 0 }

// verdictBuilder collects the findings of several goroutines.
type verdictBuilder struct {
	run *RunContext

	mu      sync.Mutex
	verdict Verdict
}

func newVerdictBuilder(run *RunContext) *verdictBuilder {
	none := func() map[string]int64 { return map[string]int64{} }
	return &verdictBuilder{run: run, verdict: Verdict{
		Tickets: run.Tickets, Checked: none(), Skipped: map[string]string{}, ByInvariant: none(),
	}}
}

// add adds the findings about one job; facts are its history.
func (b *verdictBuilder) add(violations []Violation, looked map[string]int64, facts []history.Fact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for invariant, n := range looked {
		b.verdict.Checked[invariant] += n
	}
	b.verdict.ViolationCount += int64(len(violations))
	for _, v := range violations {
		b.verdict.ByInvariant[v.Invariant]++
		n := b.verdict.ByInvariant[v.Invariant]
		if n <= maxHistories {
			v.History = inOrder(facts)
		}
		if n <= maxViolations {
			b.verdict.Violations = append(b.verdict.Violations, v)
		}
	}
}

// finish sorts the violations and adds the unchecked invariants.
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

// skipped returns why an invariant was not checked completely.
func (run *RunContext) skipped(invariant Invariant, checked int64) string {
	var missing []string
	for _, source := range invariant.sources {
		if !run.complete(source) {
			missing = append(missing, string(source)+": "+cmp.Or(run.Collected.Missing[source], "not asked for"))
		}
	}
	counted := slices.ContainsFunc(run.Collected.Measured, func(m Measure) bool { return m.Counter })
	if invariant.Key == measured && (!run.Counters || !counted && run.complete(Metrics)) {
		missing = append(missing, "counters: processes ended during the run, or started after the first row")
	}
	switch why := strings.Join(missing, "; "); {
	case why == "" && checked > 0:
		return ""
	case why == "":
		return "not checked: this run had nothing to check"
	case checked > 0:
		return "checked in part, without " + why
	default:
		return "not checked: " + why
	}
}

// Violation is a violation of an invariant, with all facts about the job.
type Violation struct {
	Invariant string // key of Invariants
	Job       string // "" if it is not about a job
	Ticket    int64  // 0 if unknown
	What      string
	History   []history.Fact // in order of time; nil if there are too many violations
}

// String returns the headline and then the history, one fact per line, without secrets.
func (v Violation) String() string {
	text := v.Headline() + "\n"
	for _, fact := range v.Facts() {
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
		text += fmt.Sprintf(", ticket %d", v.Ticket)
	}
	return term.Masked(text)
}

// MarshalJSON leaves secrets out.
func (v Violation) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Invariant string   `json:"invariant"`
		What      string   `json:"what"`
		Job       string   `json:"job,omitempty"`
		Ticket    int64    `json:"ticket,omitempty"`
		History   []string `json:"history,omitempty"`
	}{term.Masked(v.Invariant), term.Masked(v.What), term.Masked(v.Job), v.Ticket, v.Facts()})
}

// Facts returns the history, one fact per line, without secrets.
func (v Violation) Facts() (lines []string) {
	for _, f := range v.History {
		lines = append(lines, when(&f).UTC().Format("15:04:05.000000")+"  "+term.Masked(line(f)))
	}
	return lines
}

// inOrder returns a copy of the facts in the order in which they happened.
func inOrder(facts []history.Fact) []history.Fact {
	sorted := slices.Clone(facts)
	slices.SortStableFunc(sorted, func(a, b history.Fact) int {
		return cmp.Or(when(&a).Compare(when(&b)), cmp.Compare(deref(a.Event).Seq, deref(b.Event).Seq))
	})
	return sorted
}

// when returns the time at which a fact happened.
func when(f *history.Fact) time.Time {
	switch {
	case f.Kind == history.StoredEvent:
		return deref(f.Event).At
	case f.Kind == history.StoredReport:
		return deref(f.Report).FinishedAt
	case f.Submission != nil && len(f.Submission.Tries) > 0:
		return f.Submission.Tries[0].Sent
	case f.Action != nil:
		return f.Action.Sent
	}
	return f.At
}

// line returns a fact's line in the history, without secrets.
func line(f history.Fact) string {
	if f.Submission != nil {
		f.Submission = new(*f.Submission)
		f.Submission.Key, f.Submission.Callback = "", RedactURL(f.Submission.Callback)
	}
	if f.Delivery != nil {
		f.Delivery = new(*f.Delivery)
		f.Delivery.URL = RedactURL(f.Delivery.URL)
	}
	return f.String()
}

// RedactURL removes secrets from a URL.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
