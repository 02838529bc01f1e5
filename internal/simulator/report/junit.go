package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// junitViolations limits each invariant's violations with facts in the JUnit file.
const junitViolations = 10

// WriteJUnit writes the verdict as JUnit XML: a test case for each invariant and each expectation. An unchecked invariant is skipped,
// with the reason.
func WriteJUnit(w io.Writer, run Run) error {
	s := junit.Suite{
		Name: "forgerun simulate " + term.Masked(run.Scenario), Began: run.Started, Took: run.Took,
		Properties: []junit.Property{{Name: "seed", Value: fmt.Sprint(run.Seed)}, {Name: "command", Value: term.Masked(run.Command)}},
	}
	if run.Verdict == nil {
		s.Cases = []junit.Case{{Name: "verdict", Class: "invariants", Skipped: &junit.Message{Message: "the run was not judged"}}}
	} else {
		for _, i := range run.Verdict.Invariants {
			c := junit.Case{Name: i.Key + ": " + i.Title, Class: "invariants"}
			switch i.Result {
			case judge.Skipped:
				c.Skipped = &junit.Message{Message: i.Skipped}
			case judge.Violated:
				message := fmt.Sprintf("checked %s, %s", plural(i.Checked, "time"), plural(i.Violations, "violation"))
				c.Failure = &junit.Message{Message: message, Text: firstOf(run.Verdict.Violations, i)}
			}
			s.Cases = append(s.Cases, c)
		}
	}
	for _, e := range run.Expectations {
		c := junit.Case{Name: term.Masked(e.Name), Class: "expectations"}
		if !e.OK {
			c.Failure = &junit.Message{Message: term.Masked(fmt.Sprintf("wanted %s, got %s", e.Want, e.Got))}
		}
		s.Cases = append(s.Cases, c)
	}
	return s.Write(w)
}

// firstOf returns the first violations of an invariant, with the evidence.
func firstOf(violations []judge.Violation, i judge.Result) string {
	var out strings.Builder
	left := junitViolations
	for _, v := range violations {
		if v.Invariant == i.Key && left > 0 {
			out.WriteString(v.String())
			left--
		}
	}
	if more := i.Violations - junitViolations; more > 0 {
		fmt.Fprintf(&out, "and %s more\n", grouped(more))
	}
	return out.String()
}
