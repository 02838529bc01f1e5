package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/verdict"
)

// JUnit writes the verdict for CI servers.
func JUnit(w io.Writer, v *verdict.Verdict) error { return Suite(v).Write(w) }

// Suite has a test case for each rule, and for each fault. What was not exercised, not met, or could be better is skipped.
func Suite(v *verdict.Verdict) junit.Suite {
	s := junit.Suite{Name: strings.TrimSpace("forgerun verdict " + string(v.Profile)), Began: time.Time(v.CreatedAt)}
	if v.EndedAt != nil {
		s.Took = time.Time(*v.EndedAt).Sub(s.Began)
	}
	for _, r := range v.Results {
		c := junit.Case{Name: r.Rule, Class: "rules"}
		switch r.Status {
		case verdict.Broken:
			message := &junit.Message{Message: fmt.Sprintf("%s Broken %d of %d times.", r.Title, r.Failures, r.Times), Text: evidenceText(r)}
			if c.Failure = message; r.Level == verdict.Should {
				message.Message = "Could be better: " + message.Message
				c.Failure, c.Skipped = nil, message
			}
		case verdict.NotExercised:
			c.Skipped = &junit.Message{Message: "Not exercised. What would: " + r.Exercise}
		}
		s.Cases = append(s.Cases, c)
	}
	for _, f := range v.Faults {
		c := junit.Case{Name: f.Fault + " (" + string(f.Of) + ")", Class: "faults"}
		if f.Times == 0 {
			c.Skipped = &junit.Message{Message: fmt.Sprintf("Not met by %d %s.", f.Requests, f.Of)}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}

func evidenceText(r verdict.Result) string {
	var b strings.Builder
	for _, e := range r.Evidence {
		fmt.Fprintln(&b)
		writeMoment(&b, e.Before)
		writeMoment(&b, e.Request)
		fmt.Fprintf(&b, "  found%s: %s\n  expected: %s\n", times(e.Times), printable(e.Found), printable(e.Expected))
	}
	fmt.Fprintf(&b, "%q (%s)\n", r.Quote, r.See)
	return b.String()
}

// times says how often, if more than once.
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
	fmt.Fprintf(b, "  answer: %s\n", printable(m.Answer))
	if m.Fault != "" {
		fmt.Fprintf(b, "  fault: %s\n", printable(m.Fault))
	}
	if m.Connection > 0 {
		fmt.Fprintf(b, "  connection: %d\n", m.Connection)
	}
}
