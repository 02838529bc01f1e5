package summary

import (
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"slices"

	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/report"
)

// JSON writes the overall verdict and the verdict of each session.
func (s *Summary) JSON(w io.Writer) error {
	document := struct {
		Verdict  verdict.Conclusion `json:"verdict"`
		Why      string             `json:"why"`
		Notes    []string           `json:"notes"`
		Missing  []string           `json:"missing"`
		Stale    []string           `json:"stale"` // baseline entries to delete
		Sessions []verdict.Verdict  `json:"sessions"`
	}{s.Verdict(), s.Why(), append([]string{}, s.Notes...), append([]string{}, s.Missing()...), append([]string{}, s.Stale()...),
		[]verdict.Verdict{}}
	for _, n := range s.Sessions {
		document.Sessions = append(document.Sessions, n.Verdict)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// JUnit writes a test suite for each session, with a case for each rule and each fault. Notes, unmet requirements and stale baseline
// entries are cases of another suite.
func (s *Summary) JUnit(w io.Writer) error {
	var suites []junit.Suite
	for _, n := range s.Sessions {
		suite := report.Suite(&n.Verdict)
		suite.Name = "forgerun verdict: " + n.Name()
		suites = append(suites, suite)
	}
	if missing := slices.Concat(s.Notes, s.Missing(), s.Stale()); len(missing) > 0 {
		suite := junit.Suite{Name: "forgerun verdict: all sessions"}
		for _, sentence := range missing {
			suite.Cases = append(suite.Cases, junit.Case{Name: sentence, Class: "missing", Failure: &junit.Message{Message: sentence}})
		}
		suites = append(suites, suite)
	}
	return junit.Write(w, suites)
}

//go:embed index.html
var indexText string

var indexTemplate = template.Must(template.New("index").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(report.Style) }, //nolint:gosec // our own style sheet
	"tone":  report.Tone,
}).Parse(indexText))

// Index writes an HTML page with a table of the sessions, failed ones first. Each row links to the session's page.
func (s *Summary) Index(w io.Writer, links []string) error {
	pages := map[string]string{}
	for i, n := range s.Sessions {
		pages[n.ID] = links[i]
	}
	return indexTemplate.Execute(w, struct {
		*Summary
		Rows  []Session
		Links map[string]string
	}{s, ByFailure(s.Sessions), pages})
}
