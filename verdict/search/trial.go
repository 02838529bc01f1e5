package search

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Trial is the result of one run of the client.
type Trial struct {
	Results  []verdict.Result
	Entries  []verdict.Entry
	Failed   string // how the command failed; empty if it succeeded
	Hung     bool   // whether the command was ended because of its time limit
	LastLine string // last line of the output, preferably of standard error
	Took     time.Duration
}

// Problems other than broken rules.
const (
	commandFails = "command-fails"
	commandHangs = "command-hangs"
	workLost     = "work-lost"
	workDoubled  = "work-doubled"
)

// Break is one problem that a trial revealed.
type Break struct {
	Rule     string            `json:"rule"` // id of a rule, or one of the constants above
	Title    string            `json:"title"`
	Level    verdict.Level     `json:"level,omitempty"` // empty if no rule is broken
	See      string            `json:"see,omitempty"`
	Quote    string            `json:"quote,omitempty"`
	Found    string            `json:"found"`
	Expected string            `json:"expected"`
	Evidence *verdict.Evidence `json:"evidence,omitempty"` // nil if no rule is broken

	shape string
}

func (b Break) group() string { return b.Rule + "\n" + b.shape }

type base struct {
	jobs   int           // number of submitted jobs; 0 if it varies
	took   time.Duration // longest time of a run
	learns bool          // whether the client learned in each run how its jobs ended
}

// breaks returns the problems in a trial under a schedule.
func (b *base) breaks(s Schedule, t *Trial) (all []Break) {
	// A client that succeeds claims to know how its jobs ended, unless it never looks or a fault allows it to give up.
	silent := b.learns && t.Failed == "" && !s.happened(t).mayFail()
	for _, r := range t.Results {
		if r.Status != verdict.Fail && !(silent && r.Rule == outcomeLearned && r.Status == verdict.Warn) || len(r.Evidence) == 0 {
			continue
		}
		e := r.Evidence[0]
		request := ""
		if e.Request != nil {
			request = e.Request.Request
		}
		all = append(all, Break{
			Rule: r.Rule, Title: r.Title, Level: r.Level, See: r.See, Quote: r.Quote, Found: e.Found, Expected: e.Expected, Evidence: &e,
			shape: shape(request) + " " + shape(e.Found),
		})
	}
	slices.SortStableFunc(all, func(x, y Break) int { return cmp.Compare(severity(x.Rule), severity(y.Rule)) })
	jobs := t.jobs()
	switch {
	case t.Hung:
		all = append(all, Break{
			Rule: commandHangs, Title: "The client ends.", Found: fmt.Sprintf("The command was still running after %s.", t.Took.Round(time.Second)),
			Expected: fmt.Sprintf("The command ends: without faults it takes %s.", b.took.Round(time.Millisecond)),
		})
	case t.Failed != "" && !s.happened(t).mayFail():
		all = append(all, Break{
			Rule: commandFails, Title: "The client recovers from temporary faults.", Found: "The command failed (" + t.Failed + "): " + t.LastLine,
			Expected: "The command succeeds: the faults are temporary, so a client need not give up.", shape: shape(t.LastLine),
		})
	case t.Failed == "" && b.jobs > 0 && jobs < b.jobs:
		all = append(all, Break{
			Rule: workLost, Title: "The client submits all of its work, or reports that it could not.",
			Found:    fmt.Sprintf("The command succeeded with %d jobs.", jobs),
			Expected: fmt.Sprintf("The command creates %d jobs, as without faults, or fails.", b.jobs),
		})
	case t.Failed == "" && b.jobs > 0 && jobs > b.jobs:
		all = append(all, Break{
			Rule: workDoubled, Title: "The client submits its work once.", Found: fmt.Sprintf("The command created %d jobs.", jobs),
			Expected: fmt.Sprintf("The command creates %d jobs, as without faults.", b.jobs),
		})
	}
	return all
}

const outcomeLearned = "outcome-learned"

// learns reports whether the client learned how its jobs ended.
func (t *Trial) learns() (learned bool) {
	for _, r := range t.Results {
		if r.Rule == outcomeLearned {
			if r.Status.Broken() {
				return false
			}
			learned = learned || r.Status == verdict.OK
		}
	}
	return learned
}

// severity returns the sort key of a rule. Rules that do the most harm when broken have the lowest keys.
func severity(rule string) int {
	if i := slices.Index([]string{"no-duplicates", "one-job-per-intention", outcomeLearned, "lost-answer"}, rule); i >= 0 {
		return i - 4
	}
	return 0
}

func (t *Trial) jobs() int {
	made := map[string]bool{}
	for _, e := range t.Entries {
		if e.Of == fault.Submissions && e.Job != "" {
			made[e.Job] = true
		}
	}
	return len(made)
}

func (s Schedule) happened(t *Trial) (part Schedule) {
	left := t.faults(false)
	for _, step := range s {
		cell := Cell{Operation: step.Operation, Fault: strings.Join(step.Effect.Kinds(), ", ")}
		if step.Times = min(step.Times, left[cell]); step.Times > 0 {
			left[cell] -= step.Times
			part = append(part, step)
		}
	}
	return part
}

// ids matches words and path segments with a digit, because they may be different in each run.
var ids = regexp.MustCompile(`[^/\s]*\d[^/\s]*`)

const longestShape = 120

// shape returns a text without the parts that may differ between runs.
func shape(text string) string {
	text, _, _ = strings.Cut(text, "?")
	text = ids.ReplaceAllString(strings.TrimSpace(text), "#")
	return text[:min(len(text), longestShape)]
}

// Cell is a combination of operation, fault and state of the job.
type Cell struct {
	Operation string           `json:"operation"`
	Fault     string           `json:"fault"`
	State     verdict.JobState `json:"job_state"` // empty: the request names no job
}

// faults returns the number of faults that happened, by operation and kind. If `byState` is true, each state of the job has its own
// count.
func (t *Trial) faults(byState bool) map[Cell]int {
	counts := map[Cell]int{}
	for _, e := range t.Entries {
		kinds, _, _ := strings.Cut(e.Fault, " {")
		if cell := (Cell{e.Operation, kinds, e.JobState}); kinds != "" {
			if !byState {
				cell.State = ""
			}
			counts[cell]++
		}
	}
	return counts
}
