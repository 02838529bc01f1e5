package report

import (
	"embed"
	"html/template"
	"io"
	"strings"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// The charts are drawn by uPlot 1.6.32, whose files are those of "npm pack uplot@1.6.32"; its licence goes into each page.
//
//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"grouped": grouped, "brief": brief, "rate": rate, "total": total, "printable": judge.Printable, "lines": printableLines,
	"script":  script,
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

func printableLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, judge.Printable(strings.TrimRight(line, "\r\n")))
	}
	return strings.Join(lines, "\n")
}

// WriteHTML writes the report as one page that fetches nothing. It holds the document of WriteJSON, of which its
// script draws the charts.
func WriteHTML(w io.Writer, run Run) error { return pageTemplate.Execute(w, documentOf(run)) }
