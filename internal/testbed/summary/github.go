package summary

import (
	_ "embed"
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/verdict"
)

//go:embed summary.md
var markdownText string

var markdownTemplate = template.Must(template.New("markdown").Funcs(template.FuncMap{
	"mark": func(r verdict.Result) string { return strings.TrimSpace(marks[rank(r)].text) },
	"text": markdown, "cell": func(text string) string { return strings.ReplaceAll(markdown(text), "|", `\|`) },
	"evidence": evidence,
}).Parse(markdownText))

// Markdown writes the verdict for a CI page: a table of the broken rules, with the first evidence of each.
func (s *Summary) Markdown(w io.Writer) error { return markdownTemplate.Execute(w, s) }

// Tested returns the rules that at least one session tested and none broke.
func (s *Summary) Tested() string {
	var rules []string
	for _, r := range verdict.Having(s.Results(), verdict.OK) {
		rules = append(rules, r.Rule)
	}
	return strings.Join(rules, ", ")
}

func markdown(text string) string {
	var b strings.Builder
	for _, r := range term.Masked(text) {
		switch {
		case r == '<':
			b.WriteString("&lt;")
			continue
		case r == '&':
			b.WriteString("&amp;")
			continue
		case strings.ContainsRune("\\`*_[]#!@~", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// maxEvidenceLine limits a line of evidence, because CI servers limit the size of a summary.
const maxEvidenceLine = 400

// evidence returns the requests that broke the rule, as a Markdown code block. The fence is longer than any fence in the text.
func evidence(e verdict.Evidence) (string, error) {
	var b strings.Builder
	if err := texts.ExecuteTemplate(&b, "evidence", e); err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(term.MaskedLines(b.String())) {
		if line = strings.TrimSpace(line); len(line) > maxEvidenceLine {
			line = strings.ToValidUTF8(line[:maxEvidenceLine], "") + "..."
		}
		lines = append(lines, line)
	}
	text := strings.Join(lines, "\n")
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + text + "\n" + fence + "\n", nil
}

// Annotations writes a GitHub Actions workflow command for each broken rule, unmet requirement and stale baseline entry.
func (s *Summary) Annotations(w io.Writer) error {
	var b strings.Builder
	for _, r := range s.ByWeight() {
		level := "error"
		if r.Status == verdict.Warn {
			level = "warning"
		}
		text := fmt.Sprintf("%s Rule broken in %s. %s", r.Title, r.In, r.Fix.Text)
		fmt.Fprintf(&b, "::%s title=ForgeRun %s::%s\n", level, r.Rule, escapeCommand(text))
	}
	for _, sentence := range append(s.Missing(), s.Stale()...) {
		fmt.Fprintf(&b, "::error title=ForgeRun::%s\n", escapeCommand(sentence))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A workflow command must be a single line.
func escapeCommand(text string) string {
	return strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(term.Masked(text))
}
