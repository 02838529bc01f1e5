package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/verdict"
)

// JUnit writes the verdict in JUnit XML.
func JUnit(w io.Writer, v *verdict.Verdict) error { return Suite(v).Write(w) }

// Suite returns a test suite with a case for each rule and each fault. Warnings and untested rules become skipped cases with a reason. If
// the verdict is NothingJudged, an additional case fails.
func Suite(v *verdict.Verdict) junit.Suite {
	s := junit.Suite{Name: strings.TrimSpace("forgerun verdict " + string(v.Profile)), Began: time.Time(v.CreatedAt)}
	if v.EndedAt != nil {
		s.Took = time.Time(*v.EndedAt).Sub(s.Began)
	}
	if v.Verdict == verdict.NothingJudged {
		message := &junit.Message{Message: v.Verdict.Words() + ": " + v.Why}
		s.Cases = append(s.Cases, junit.Case{Name: "verdict", Class: "verdict", Failure: message})
	}
	for _, r := range v.Results {
		c := junit.Case{Name: r.Rule, Class: "rules"}
		switch r.Status {
		case verdict.Fail:
			c.Failure = brokenMessage("FAIL", r)
		case verdict.Warn:
			c.Skipped = brokenMessage("WARN", r)
		case verdict.NotTested:
			c.Skipped = &junit.Message{Message: "Not tested: " + r.Reason + ". How to test it: " + r.Exercise}
		case verdict.OK:
		}
		s.Cases = append(s.Cases, c)
	}
	for _, f := range v.Faults {
		c := junit.Case{Name: f.Fault + " (" + string(f.Of) + ")", Class: "faults"}
		if f.Times == 0 {
			c.Skipped = &junit.Message{Message: "This fault was never triggered."}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}

func brokenMessage(word string, r verdict.Result) *junit.Message {
	return &junit.Message{
		Message: fmt.Sprintf("%s: %s The rule was broken %d of %d times.", word, r.Title, r.Failures, r.Times), Text: evidenceText(r),
	}
}

func evidenceText(r verdict.Result) string {
	var b strings.Builder
	for _, e := range r.Evidence {
		fmt.Fprintln(&b)
		writeMoment(&b, e.Before)
		writeMoment(&b, e.Request)
		fmt.Fprintf(&b, "  found%s: %s\n  expected: %s\n", times(e.Times), printable(e.Found), printable(e.Expected))
	}
	fmt.Fprintf(&b, "  fix: %s\n    Python: %s\n    TypeScript: %s\n    Go: %s\n", r.Fix.Text, r.Fix.Python, r.Fix.TypeScript, r.Fix.Go)
	fmt.Fprintf(&b, "%q (%s)\n", r.Quote, r.See)
	return b.String()
}

// times returns " (2 times)" for 2 and "" for 1.
func times(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d times)", n)
}

func writeMoment(b *strings.Builder, m *verdict.Moment) {
	if m == nil {
		return
	}
	fmt.Fprintf(b, "%s %s\n", at(m.At, "2006-01-02T15:04:05.000Z"), printable(strings.Join(append([]string{m.Request}, m.Headers...), ", ")))
	fmt.Fprintf(b, "%s response: %s\n", at(m.Until, "2006-01-02T15:04:05.000Z"), printable(m.Answer))
	if m.Fault != "" {
		fmt.Fprintf(b, "  fault: %s\n", printable(m.Fault))
	}
	if m.Connection > 0 {
		fmt.Fprintf(b, "  connection: %d\n", m.Connection)
	}
}
