package summary

import (
	"encoding/json"
	"io"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

// JSON writes the conclusion, and the verdict of each session.
func (s *Summary) JSON(w io.Writer) error {
	document := struct {
		Verdict  verdict.Conclusion `json:"verdict"`
		Missing  []string           `json:"missing"`
		Sessions []verdict.Verdict  `json:"sessions"`
	}{s.Verdict(), append([]string{}, s.Missing()...), []verdict.Verdict{}}
	for _, n := range s.Sessions {
		document.Sessions = append(document.Sessions, n.Verdict)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// JUnit writes a test suite for each session, with a case for each rule and each fault, and one for what the policy misses in all of
// them.
func (s *Summary) JUnit(w io.Writer) error {
	var suites []junit.Suite
	for _, n := range s.Sessions {
		suite := report.Suite(&n.Verdict)
		suite.Name = "forgerun verdict: " + n.Name()
		suites = append(suites, suite)
	}
	if missing := s.Missing(); len(missing) > 0 {
		suite := junit.Suite{Name: "forgerun verdict: all sessions"}
		for _, sentence := range missing {
			suite.Cases = append(suite.Cases, junit.Case{Name: sentence, Class: "missing", Failure: &junit.Message{Message: sentence}})
		}
		suites = append(suites, suite)
	}
	return junit.Write(w, suites)
}

// HTML writes a page, without a script: that of the session, or of all sessions with a table before.
func (s *Summary) HTML(w io.Writer) error {
	if len(s.Sessions) == 1 {
		return report.HTML(w, &s.Sessions[0].Verdict)
	}
	var names []string
	var all []*verdict.Verdict
	for i := range s.Sessions {
		names, all = append(names, s.Sessions[i].Name()), append(all, &s.Sessions[i].Verdict)
	}
	return report.Pages(w, s.Verdict(), names, all)
}
