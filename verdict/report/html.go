// Package report writes the verdict on a session as JUnit XML, as an HTML page, and as a journal.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Style is the style sheet that all reports share.
//
//go:embed style.css
var Style string

var (
	//go:embed page.css
	pageStyle string
	//go:embed page.html
	page string
)

var pageTemplate = template.Must(template.New("verdict").Funcs(template.FuncMap{
	"plain": printable, "count": count, "having": having, "at": at, "times": times, "grouped": grouped, "lasted": lasted,
	"plural": plural, "tone": Tone,
}).Parse(page))

type view struct {
	*verdict.Verdict
	timeline
	Entries      int
	Shown        int
	First        rows // first requests of the session
	Breaking     rows // first requests that broke rules
	MoreBreaking int  // number of requests that broke rules but are not in Breaking
}

// HTML writes the verdict as a single-file page without scripts. The page lists only the first requests, and the first that broke rules.
// The journal lists all requests.
func HTML(w io.Writer, v *verdict.Verdict) error {
	shown := view{Verdict: v}
	var points []point
	for e := range v.Journal() {
		points = append(points, pointOf(&e))
		if shown.First.add(&e) {
			shown.Shown++
		}
		if len(e.Breaks) > 0 && !shown.Breaking.add(&e) {
			shown.MoreBreaking++
		}
	}
	shown.Entries, shown.timeline = len(points), timelineOf(points)
	return pageTemplate.Execute(w, &shown)
}

func (*view) Style() template.CSS { return template.CSS(Style + pageStyle) } //nolint:gosec // our own style sheet

func (s *view) FaultTimes() (n int) {
	for _, f := range s.Faults {
		n += f.Times
	}
	return n
}

func (s *view) Headline() string { return verdict.Headline(s.Verdict.Verdict, s.Results) }

// Tone returns the CSS class of a conclusion in Style.
func Tone(c verdict.Conclusion) string {
	return cmp.Or(map[verdict.Conclusion]string{verdict.Passed: "good", verdict.Failed: "bad"}[c], "open")
}

func (s *view) Mark() string {
	return map[verdict.Conclusion]string{
		verdict.Passed: "✓", verdict.Warned: "!", verdict.Failed: "✗", verdict.NothingJudged: "–",
	}[s.Verdict.Verdict]
}

func either(first bool, one, other string) string {
	if first {
		return one
	}
	return other
}

func count(s *view, status string) int { return s.Counts[verdict.Status(status)] }

func having(v *verdict.Verdict, statuses ...verdict.Status) []verdict.Result {
	return verdict.Having(v.Results, statuses...)
}

func at(t any, layout string) string {
	if p, ok := t.(*fault.Time); ok {
		t = *p
	}
	moment, _ := t.(fault.Time)
	return time.Time(moment).UTC().Format(layout)
}

func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int, what string) string { return grouped(n) + " " + what + either(n == 1, "", "s") }

func lasted(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
