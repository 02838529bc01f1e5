package report

import (
	"embed"
	"html/template"
	"io"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	verdictreport "github.com/forgerun/forgerun/verdict/report"
)

// The charts are drawn by uPlot 1.6.32, whose files are those of "npm pack uplot@1.6.32"; its licence goes into each page.
//
//go:embed page
var pageFiles embed.FS

// functions are those of all templates.
var functions = template.FuncMap{
	"grouped": grouped, "plural": plural, "brief": brief, "clock": clockTime, "rate": rate, "total": total, "listed": listed,
	"printable": judge.Printable, "lines": judge.PrintableLines, "next": func(i int) int { return i + 1 },
	"minus": func(n, m int64) int64 { return n - m },
	"first": func(n int, all []judge.Violation) []judge.Violation { return all[:min(n, len(all))] },
}

var pageTemplate = template.Must(template.New("page.html").Funcs(functions).Funcs(template.FuncMap{
	"script":  script,
	"common":  func() template.CSS { return template.CSS(verdictreport.Style) },       //nolint:gosec // ours
	"css":     func(name string) template.CSS { return template.CSS(pageFile(name)) }, //nolint:gosec // ours
	"library": func() template.JS { return "/* " + script("uPlot-LICENSE") + " */\n" + script("uPlot.iife.min.js") },
}).ParseFS(pageFiles, "page/page.html"))

func pageFile(name string) string {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(content)
}

func script(name string) template.JS { return template.JS(pageFile(name)) } //nolint:gosec // ours

// WriteHTML writes the report as one page that fetches nothing. It holds the document of WriteJSON, of which its
// script draws the charts.
func WriteHTML(w io.Writer, run Run) error { return pageTemplate.Execute(w, documentOf(run)) }
