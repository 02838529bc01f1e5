package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/job/testbed"
)

// JUnit writes the verdict for CI servers: a test case for each rule, and for each fault. What was not
// exercised, not met, or could be better is skipped.
func JUnit(w io.Writer, v *testbed.Verdict) error {
	s := junit.Suite{Name: strings.TrimSpace("forgerun verdict " + string(v.Profile)), Began: time.Time(v.CreatedAt)}
	if v.EndedAt != nil {
		s.Took = time.Time(*v.EndedAt).Sub(s.Began)
	}
	for _, r := range v.Results {
		c := junit.Case{Name: r.Rule, Class: "rules"}
		switch r.Status {
		case testbed.Broken:
			message := &junit.Message{Message: fmt.Sprintf("%s Broken %d of %d times.", r.Title, r.Failures, r.Times), Text: evidenceText(r)}
			if c.Failure = message; r.Level == testbed.Should {
				message.Message = "Could be better: " + message.Message
				c.Failure, c.Skipped = nil, message
			}
		case testbed.NotExercised:
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
	return s.Write(w)
}

func evidenceText(r testbed.RuleResult) string {
	var b strings.Builder
	for _, e := range r.Evidence {
		fmt.Fprintf(&b, "\n%s %s\n  answer: %s\n", at(e.At, "2006-01-02T15:04:05.000Z"), printable(e.Request), printable(e.Answer))
		if e.Fault != "" {
			fmt.Fprintf(&b, "  fault: %s\n", printable(e.Fault))
		}
		fmt.Fprintf(&b, "  found: %s\n  expected: %s\n", printable(e.Found), printable(e.Expected))
	}
	fmt.Fprintf(&b, "%q (%s)\n", r.Quote, r.See)
	return b.String()
}
