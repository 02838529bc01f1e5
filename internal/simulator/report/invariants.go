package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Results of an invariant.
const (
	held       = "held"
	violated   = "VIOLATED"
	notChecked = "skipped"
)

// checkedInvariant is what the judge says of one invariant.
type checkedInvariant struct {
	Key, Title string
	Result     string
	Class      string // how the result looks on the page
	Sign       string // says the same without colour
	Checked    int64
	Violations int64  // of those that the verdict lists
	Why        string // it was not checked, or only partly
}

// Remark says how often the invariant was checked, or why not.
func (c checkedInvariant) Remark() string {
	if c.Result == notChecked {
		return c.Why
	}
	text := "checked " + times(c.Checked)
	if c.Violations > 0 {
		text += ", violations " + grouped(c.Violations)
	}
	if c.Why != "" {
		text += "; not all of it: " + c.Why
	}
	return text
}

// invariants lists them all, and those of violations that are not in the list.
func (run Run) invariants() []checkedInvariant {
	if run.Verdict == nil {
		return nil
	}
	violations := map[string]int64{}
	all := slices.Clone(judge.Invariants)
	for _, v := range run.Verdict.Violations {
		violations[v.Invariant]++
		if !slices.ContainsFunc(all, func(i judge.Invariant) bool { return i.Key == v.Invariant }) {
			all = append(all, judge.Invariant{Key: v.Invariant, Title: v.Invariant})
		}
	}
	var list []checkedInvariant
	for _, i := range all {
		c := checkedInvariant{
			Key: printable(i.Key), Title: printable(i.Title), Result: held, Class: "good", Sign: "✓",
			Checked: run.Verdict.Checked[i.Key], Violations: violations[i.Key], Why: printable(run.Verdict.Skipped[i.Key]),
		}
		switch {
		case c.Violations > 0:
			c.Result, c.Class, c.Sign = violated, "bad", "✗"
		case c.Checked == 0:
			c.Result, c.Class, c.Sign = notChecked, "open", "–"
			c.Why = cmp.Or(c.Why, "there was nothing to check")
		}
		list = append(list, c)
	}
	return list
}

// story is a violation in the judge's words, which hide secrets: what was violated, the job, and a line for each
// fact.
type story struct {
	What  string
	About string // job and ticket; "" where it is about none
	Facts []string
}

func storyOf(v judge.Violation) story {
	var text strings.Builder
	v.Write(&text)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n") {
		lines = append(lines, printable(strings.TrimSpace(line)))
	}
	s := story{What: lines[0], Facts: lines[1:]}
	if len(s.Facts) > 0 && (v.Job != "" || v.Ticket > 0) {
		s.About, s.Facts = s.Facts[0], s.Facts[1:]
	}
	return s
}

// Headline is all but the facts, on one line.
func (s story) Headline() string {
	if s.About == "" {
		return s.What
	}
	return s.What + " (" + s.About + ")"
}
