package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job/testbed"
)

type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Errors   int        `xml:"errors,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name      string   `xml:"name,attr"`
	Classname string   `xml:"classname,attr"`
	Time      string   `xml:"time,attr"`
	Failure   *message `xml:"failure,omitempty"`
	Skipped   *message `xml:"skipped,omitempty"`
}

type message struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the verdict for CI servers: a test case for each rule. One that was not exercised is skipped.
func JUnit(w io.Writer, v *testbed.Verdict) error {
	s := suite{
		Name: strings.TrimSpace("forgerun verdict " + string(v.Profile)), Tests: len(v.Results),
		Failures: v.Counts[testbed.Broken], Skipped: v.Counts[testbed.NotExercised], Time: "0",
	}
	if v.EndedAt != nil {
		s.Time = fmt.Sprintf("%.3f", time.Time(*v.EndedAt).Sub(time.Time(v.CreatedAt)).Seconds())
	}
	for _, r := range v.Results {
		c := testCase{Name: r.Rule, Classname: "rules", Time: "0"}
		switch r.Status {
		case testbed.Broken:
			c.Failure = &message{Message: fmt.Sprintf("%s Broken %d of %d times.", r.Title, r.Failures, r.Times), Text: evidenceText(r)}
		case testbed.NotExercised:
			c.Skipped = &message{Message: "Not exercised. What would: " + r.Exercise}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
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
	fmt.Fprintf(&b, "See %s\n", r.See)
	return b.String()
}
