package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Of violations, the page lists this many, with the facts that the judge kept.
const htmlViolations = 1000

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"grouped": grouped, "brief": brief, "printable": printable, "lines": printableLines, "times": times,
	"story": storyOf, "faultColor": faultColor,
}).ParseFS(pageFiles, "page/*.html"))

// page is what the template shows of a run.
type page struct {
	Run
	Title        string
	Class        string // of the outcome
	Sentence     string
	When         string
	Key          []keyNumber
	Lanes        *plot // nil: no faults
	Plots        []plot
	Distribution plot
	Latencies    []namedLatency
	Invariants   []checkedInvariant
	Violations   []judge.Violation
	More         int64 // violations beyond
	Settings     []Setting
}

// keyNumber is one of the numbers that people look for first.
type keyNumber struct{ Name, Value, Remark string }

// WriteHTML writes the report as one page that fetches nothing and needs no script.
func WriteHTML(w io.Writer, run Run) error {
	spans := faultSpans(run)
	p := page{
		Run: run, Title: orDash(run.Scenario), Sentence: run.sentence(), Key: keyNumbers(run),
		Class: map[Outcome]string{Passed: "good", Unjudged: "open", Unmet: "bad", Violated: "bad"}[run.Outcome()],
		When:  run.Started.Format("2006-01-02 15:04:05 MST"),
		Lanes: faultLanes(run, spans), Plots: timePlots(run, spans), Distribution: distributionPlot(run.Numbers),
		Latencies: run.Numbers.latencies(), Invariants: run.invariants(), Settings: settings(run),
	}
	if run.Verdict != nil {
		p.Violations = run.Verdict.Violations[:min(len(run.Verdict.Violations), htmlViolations)]
		p.More = run.Verdict.ViolationCount - int64(len(p.Violations))
	}
	return pageTemplate.Execute(w, p)
}

func keyNumbers(run Run) []keyNumber {
	n := run.Numbers
	finished := total(n.Finished)
	list := []keyNumber{
		{"Submitted", grouped(n.Arrivals), average(n.Arrivals, run.Took)},
		{"Finished", grouped(finished), average(finished, run.Took)},
		{"Submit p99", orNone(n.Submit.Count, n.Submit.P99), "p50 " + orNone(n.Submit.Count, n.Submit.P50)},
		{"Finish p99", orNone(n.Finish.Count, n.Finish.P99), "p50 " + orNone(n.Finish.Count, n.Finish.P50)},
	}
	answered := total(n.Answers)
	if not := answered - number(n.Answers, Accepted) - number(n.Answers, Replayed); answered > 0 {
		list = append(list, keyNumber{"Not accepted", grouped(not), fmt.Sprintf("%.2f %% of the answers", 100*float64(not)/float64(answered))})
	}
	if most := mostWorkers(run); most > 0 {
		list = append(list, keyNumber{"Workers", grouped(most), "processes at most"})
	}
	if n.Delivered+n.Refused > 0 {
		list = append(list, keyNumber{"Deliveries", grouped(n.Delivered + n.Refused), grouped(n.Refused) + " not taken"})
	}
	if n.Injected > 0 {
		list = append(list, keyNumber{"Faults", grouped(n.Injected), "of " + plural(int64(len(run.Kinds)), "kind")})
	}
	return list
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

func orNone(count int64, value time.Duration) string {
	if count == 0 {
		return "-"
	}
	return brief(value)
}

// settings are what is needed to repeat the run.
func settings(run Run) []Setting {
	list := []Setting{
		{"Scenario", run.Scenario}, {"Seed", fmt.Sprint(run.Seed)}, {"Command", run.Command},
		{"Started", run.Started.Format("2006-01-02 15:04:05.000 MST")}, {"Took", clockTime(run.Took)},
	}
	return slices.Concat(list, run.Service, run.Machine)
}
