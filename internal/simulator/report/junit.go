package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Of each invariant's violations, the JUnit file has this many with the facts.
const junitViolations = 10

type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	junitTotals
	Suite junitSuite `xml:"testsuite"`
}

type junitTotals struct {
	Name     string `xml:"name,attr"`
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Errors   int    `xml:"errors,attr"`
	Time     string `xml:"time,attr"`
}

type junitSuite struct {
	junitTotals
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name      string        `xml:"name,attr"`
	Classname string        `xml:"classname,attr"`
	Time      string        `xml:"time,attr"`
	Failure   *junitMessage `xml:"failure,omitempty"`
	Skipped   *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",cdata"`
}

// WriteJUnit writes the verdict for CI servers: a test case for each invariant and each expectation. An unchecked
// invariant is skipped, and says why.
func WriteJUnit(w io.Writer, run Run) error {
	s := junitSuite{
		junitTotals: junitTotals{Name: "simulator " + orDash(run.Scenario), Time: fmt.Sprintf("%.3f", run.Took.Seconds())},
		Timestamp:   run.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties:  []junitProperty{{"seed", fmt.Sprint(run.Seed)}, {"command", printable(run.Command)}},
	}
	for _, i := range run.invariants() {
		s.Cases = append(s.Cases, run.junitInvariant(i))
	}
	if run.Verdict == nil {
		s.Cases = append(s.Cases, junitCase{
			Name: "verdict", Classname: "invariants", Time: "0", Skipped: &junitMessage{Message: "the run was not judged"},
		})
	}
	for _, e := range run.Expectations {
		c := junitCase{Name: printable(e.Name), Classname: "expectations", Time: "0"}
		if !e.OK {
			c.Failure = &junitMessage{Message: printable(fmt.Sprintf("wanted %s, got %s", e.Want, e.Got)), Type: "expectation"}
		}
		s.Cases = append(s.Cases, c)
	}
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		if c.Failure != nil {
			s.Failures++
		}
		if c.Skipped != nil {
			s.Skipped++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{junitTotals: s.junitTotals, Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (run Run) junitInvariant(i checkedInvariant) junitCase {
	c := junitCase{Name: i.Key + ": " + i.Title, Classname: "invariants", Time: "0"}
	switch i.Result {
	case notChecked:
		c.Skipped = &junitMessage{Message: i.Why}
	case violated:
		c.Failure = &junitMessage{Message: i.Remark(), Type: "violation", Text: run.violationsOf(i.Key)}
	}
	return c
}

// violationsOf writes the first violations of an invariant with what was seen.
func (run Run) violationsOf(key string) string {
	var out strings.Builder
	n := 0
	for _, v := range run.Verdict.Violations {
		if printable(v.Invariant) != key {
			continue
		}
		if n++; n > junitViolations {
			continue
		}
		story := storyOf(v)
		fmt.Fprintf(&out, "%s\n", story.Headline())
		for _, line := range story.Facts {
			fmt.Fprintf(&out, "    %s\n", line)
		}
	}
	if n > junitViolations {
		fmt.Fprintf(&out, "and %s more\n", grouped(int64(n-junitViolations)))
	}
	return out.String()
}
