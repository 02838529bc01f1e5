package report

import (
	"bytes"
	"embed"
	"encoding/json"
	htmltemplate "html/template"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	verdictreport "github.com/forgerun/forgerun/verdict/report"
)

// document is the JSON report, and the data of the templates. Its members are stable: members may be added, but none is removed or
// changes its meaning within a Version. Times of day are RFC 3339, durations are in milliseconds. Series have one value per step.
type document struct {
	Version  int     `json:"version"` // 1
	Outcome  Outcome `json:"outcome"`
	Headline string  `json:"headline"`
	Sentence string  `json:"sentence"`
	Run
	DurationMS float64            `json:"duration_ms"`
	Latency    map[string]Latency `json:"latency_ms"` // submit, finish
	Verdict    *judge.Verdict     `json:"verdict"`    // null: not judged
}

func documentOf(run Run) document {
	d := document{
		Version: 1, Outcome: run.Outcome(), Headline: run.headline(), Sentence: run.sentence(), Run: run, DurationMS: ms(run.Took),
		Latency: map[string]Latency{"submit": run.Numbers.Submit, "finish": run.Numbers.Finish},
	}
	d.Started = run.Started.UTC().Round(time.Millisecond)
	d.Stages, d.Faults, d.Kinds = list(run.Stages), list(run.Faults), list(run.Kinds)
	d.Expectations, d.Notes, d.WorkKinds = list(run.Expectations), list(run.Notes), list(run.WorkKinds)
	if v := run.Verdict; v != nil {
		d.Verdict = new(*v)
		d.Verdict.Violations = list(v.Violations)
	}
	return d
}

// list returns values, never null in JSON.
func list[T any](values []T) []T { return append([]T{}, values...) }

// WriteJSON writes the report as one JSON object: see document.
func WriteJSON(w io.Writer, run Run) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(documentOf(run))
}

// The charts are drawn by uPlot 1.6.32, with the files of "npm pack uplot@1.6.32"; its license is in each page.
//
//go:embed page
var pageFiles embed.FS

// functions are those of both templates.
var functions = template.FuncMap{
	"grouped": grouped, "plural": plural, "brief": brief, "clock": clockTime, "rate": rate, "total": total, "listed": listed,
	"printable": term.Masked, "lines": term.MaskedLines, "next": func(i int) int { return i + 1 },
	"minus": func(n, m int64) int64 { return n - m },
	"first": func(n int, all []judge.Violation) []judge.Violation { return all[:min(n, len(all))] },

	"script":  script,
	"common":  func() htmltemplate.CSS { return htmltemplate.CSS(verdictreport.Style) },       //nolint:gosec // ours
	"css":     func(name string) htmltemplate.CSS { return htmltemplate.CSS(pageFile(name)) }, //nolint:gosec // ours
	"library": func() htmltemplate.JS { return "/* " + script("uPlot-LICENSE") + " */\n" + script("uPlot.iife.min.js") },
}

// Templates are parsed at their use: that would take half of the time in which any process of the program starts.
func pageTemplate() *htmltemplate.Template {
	return htmltemplate.Must(htmltemplate.New("page.html").Funcs(functions).ParseFS(pageFiles, "page/page.html"))
}

func summaryTemplate() *template.Template {
	return template.Must(template.New("summary.txt").Funcs(functions).ParseFS(pageFiles, "page/summary.txt"))
}

func pageFile(name string) string {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(content)
}

func script(name string) htmltemplate.JS { return htmltemplate.JS(pageFile(name)) } //nolint:gosec // ours

// WriteHTML writes the report as one page that fetches nothing. It holds the document of WriteJSON, of which its
// script draws the charts.
func WriteHTML(w io.Writer, run Run) error { return pageTemplate().Execute(w, documentOf(run)) }

var outcomeColors = map[Outcome]term.Color{
	Passed: term.Good, Unjudged: term.Warn, Inconclusive: term.Warn, Unmet: term.Bad, Violated: term.Bad,
}

// WriteSummary writes the run in plain text: the verdict first, then numbers, faults, expectations and the first violations. It colors
// the verdict on a terminal, unless NO_COLOR is set.
func WriteSummary(w io.Writer, run Run) error {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if err := summaryTemplate().Execute(columns, documentOf(run)); err != nil {
		return err
	}
	_ = columns.Flush() // to memory
	outcome := string(run.Outcome())
	painted := term.Of(w, os.Getenv).Paint(outcomeColors[run.Outcome()], outcome)
	_, err := io.WriteString(w, strings.Replace(term.MaskedLines(out.String()), outcome, painted, 1))
	return err
}
