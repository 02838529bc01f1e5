package report

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	htmltemplate "html/template"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/junit"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	verdictreport "github.com/forgerun/forgerun/verdict/report"
)

// document is the JSON report, and the data for the templates. As long as Version stays the same, members are only added, never removed or
// changed. Times are in RFC 3339 format, durations are in milliseconds.
type document struct {
	Version  int     `json:"version"`
	Outcome  Outcome `json:"outcome"`
	Headline string  `json:"headline"`
	Sentence string  `json:"sentence"`
	Run
	DurationMS float64            `json:"duration_ms"`
	Latency    map[string]Latency `json:"latency_ms"` // keys: "submit", "finish"
}

func documentOf(run Run) document {
	d := document{
		Version: 1, Outcome: run.Outcome(), Headline: run.headline(), Sentence: run.sentence(), Run: run, DurationMS: ms(run.Took),
		Latency: map[string]Latency{"submit": run.Numbers.Submit, "finish": run.Numbers.Finish},
	}
	d.Started = run.Started.UTC().Round(time.Millisecond)
	d.Stages, d.Faults, d.Kinds = list(run.Stages), list(run.Faults), list(run.Kinds)
	d.Expectations, d.Notes, d.WorkKinds = list(run.Expectations), list(run.Notes), list(run.WorkKinds)
	return d
}

// list copies values, so that nil becomes [] in JSON.
func list[T any](values []T) []T { return append([]T{}, values...) }

// WriteJSON writes the report as a JSON object, in the format of the type document.
func WriteJSON(w io.Writer, run Run) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(documentOf(run))
}

// uPlot 1.6.32 draws the charts. Its files were copied from the npm package. Each report page contains its license.
//
//go:embed page
var pageFiles embed.FS

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

// Templates are parsed when they are used. Parsing at the start would double the startup time of every process.
func pageTemplate() *htmltemplate.Template {
	return htmltemplate.Must(htmltemplate.New("page.html").Funcs(functions).ParseFS(pageFiles, "page/page.html"))
}

func summaryTemplate() *template.Template {
	return template.Must(template.New("summary.txt").Funcs(functions).ParseFS(pageFiles, "page/summary.txt"))
}

func pageFile(name string) string {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // does not happen: the file is embedded
	}
	return string(content)
}

func script(name string) htmltemplate.JS { return htmltemplate.JS(pageFile(name)) } //nolint:gosec // ours

// WriteHTML writes the report as a page that needs no other files. The page contains the JSON report. A script in the page draws the charts
// from it.
func WriteHTML(w io.Writer, run Run) error { return pageTemplate().Execute(w, documentOf(run)) }

var outcomeColors = map[Outcome]term.Color{
	Passed: term.Good, Unjudged: term.Warn, Inconclusive: term.Warn, Unmet: term.Bad, Violated: term.Bad,
}

// WriteSummary writes a summary in plain text, which begins with the verdict. If w is a terminal and NO_COLOR is not set, the verdict has
// a color.
func WriteSummary(w io.Writer, run Run) error {
	var out bytes.Buffer
	columns := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if err := summaryTemplate().Execute(columns, documentOf(run)); err != nil {
		return err
	}
	_ = columns.Flush() // cannot fail: it writes to memory
	outcome := string(run.Outcome())
	painted := term.Of(w, os.Getenv).Paint(outcomeColors[run.Outcome()], outcome)
	_, err := io.WriteString(w, strings.Replace(term.MaskedLines(out.String()), outcome, painted, 1))
	return err
}

var english = message.NewPrinter(language.English)

// grouped formats 1234567 as 1,234,567.
func grouped(n int64) string { return english.Sprintf("%d", n) }

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// brief rounds a duration to three significant digits: 12.3 ms, or 1m40s.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	d = d.Round(unit)
	text := d.String()
	if end := strings.LastIndexAny(text, "0123456789") + 1; d < time.Minute {
		return text[:end] + " " + text[end:]
	}
	return text
}

// clockTime formats a duration as 1:02:03, or 2:03 below an hour.
func clockTime(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

func rate(n int64, d time.Duration) string {
	if d <= 0 {
		n, d = 0, 1
	}
	return english.Sprintf("%.1f/s", float64(n)/d.Seconds())
}

// percent formats some/all as a percentage with one decimal. It never rounds to 0 % or 100 %.
func percent(some, all int64) string {
	share := 100 * float64(some) / float64(max(all, 1))
	switch {
	case some > 0 && share < 0.1:
		return "<0.1 %"
	case some < all && share > 99.9:
		return ">99.9 %"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", share), ".0") + " %"
}

func listed(numbers map[string]int64, without ...string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] != 0 && !slices.Contains(without, name) {
			parts = append(parts, strings.ToLower(term.Masked(name))+" "+grouped(numbers[name]))
		}
	}
	return strings.Join(parts, "  ")
}

func total(numbers map[string]int64) int64 {
	var n int64
	for _, one := range numbers {
		n += one
	}
	return n
}

func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// The JUnit file shows at most this many violations of each invariant. It only counts the other violations.
const junitViolations = 10

// WriteJUnit writes the verdict as JUnit XML. Each invariant and each expectation is a test case. An unchecked invariant is marked as
// skipped, with the reason.
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
