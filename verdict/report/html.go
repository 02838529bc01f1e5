// Package report writes what a test bed's session has shown of a client, for CI servers and as a page.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Style is that of pages that report something: headings, cards, tables, tiles.
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
	"plain": printable, "count": count, "broken": broken, "having": having, "at": at, "times": times, "grouped": grouped, "lasted": lasted,
	"plural": plural, "tone": Tone,
}).Parse(page))

// maxRows is how many requests a page has in a table.
const maxRows = 500

// view is what the page shows.
type view struct {
	*verdict.Verdict
	timeline
	Entries      int
	First        []verdict.Entry // of all
	Breaking     []verdict.Entry // the first of those that broke rules
	MoreBreaking int
}

// HTML writes the verdict as a page of one file, without a script. Of many requests it has some: the journal has all.
func HTML(w io.Writer, v *verdict.Verdict) error {
	shown := view{Verdict: v}
	var points []point
	for e := range v.Journal() {
		points = append(points, pointOf(&e))
		if len(shown.First) < maxRows {
			shown.First = append(shown.First, e)
		}
		if len(e.Breaks) > 0 && len(shown.Breaking) < maxRows {
			shown.Breaking = append(shown.Breaking, e)
		} else if len(e.Breaks) > 0 {
			shown.MoreBreaking++
		}
	}
	shown.Entries, shown.timeline = len(points), timelineOf(points)
	return pageTemplate.Execute(w, &shown)
}

// Style is that of the page.
func (*view) Style() template.CSS { return template.CSS(Style + pageStyle) } //nolint:gosec // ours

// Levels are those that rules have.
func (*view) Levels() []verdict.Level { return []verdict.Level{verdict.Must, verdict.Should} }

// Level counts the rules of a level with a status.
func (s *view) Level(l verdict.Level, status verdict.Status) (n int) {
	for _, r := range s.Results {
		if r.Level == l && r.Status == status {
			n++
		}
	}
	return n
}

// FaultTimes is how many faults happened.
func (s *view) FaultTimes() (n int) {
	for _, f := range s.Faults {
		n += f.Times
	}
	return n
}

// Unmet is how many faults of the profile did not come to be.
func (s *view) Unmet() (n int) {
	for _, f := range s.Faults {
		if f.Times == 0 {
			n++
		}
	}
	return n
}

// Headline is the conclusion.
func (s *view) Headline() string {
	return map[verdict.Conclusion]string{
		verdict.Right: "The client is right", verdict.Wrong: "The client is wrong", verdict.Improvable: "The client could be better",
		verdict.Incomplete: "The verdict is incomplete",
	}[s.Verdict.Verdict]
}

// Tone is the class that Style has for a conclusion.
func Tone(c verdict.Conclusion) string {
	return cmp.Or(map[verdict.Conclusion]string{verdict.Right: "good", verdict.Wrong: "bad"}[c], "open")
}

// Mark is its sign.
func (s *view) Mark() string {
	return cmp.Or(map[verdict.Conclusion]string{verdict.Right: "✓", verdict.Incomplete: "–"}[s.Verdict.Verdict], "✗")
}

// Sentence says what the conclusion is made of.
func (s *view) Sentence() string {
	must, should := s.Level(verdict.Must, verdict.Broken), s.Level(verdict.Should, verdict.Broken)
	said := "It kept " + plural(count(s, "held"), "rule") + "."
	switch {
	case must > 0 && should > 0:
		said = fmt.Sprintf("It broke %s that must be kept and %d that should be.", plural(must, "rule"), should)
	case must > 0:
		said = "It broke " + plural(must, "rule") + " that must be kept."
	case should > 0:
		said = "It broke " + plural(should, "rule") + " that should be kept."
	}
	if n := count(s, "not_exercised"); n > 0 {
		said += " Not exercised: " + plural(n, "rule") + "."
	}
	if n := s.Unmet(); n > 0 {
		said += " Faults of the profile that did not come to be: " + grouped(n) + "."
	}
	return said
}

func either(first bool, one, other string) string {
	if first {
		return one
	}
	return other
}

// count gives the number of rules with a status.
func count(s *view, status string) int { return s.Counts[verdict.Status(status)] }

// having gives the results with a status.
func having(v *verdict.Verdict, s string) (found []verdict.Result) {
	for _, r := range v.Results {
		if string(r.Status) == s {
			found = append(found, r)
		}
	}
	return found
}

// broken gives the rules that were broken, those first that say must.
func broken(v *verdict.Verdict) []verdict.Result {
	found := having(v, string(verdict.Broken))
	slices.SortStableFunc(found, func(a, b verdict.Result) int { return cmp.Compare(a.Level, b.Level) })
	return found
}

// at writes a time of a verdict, or a pointer to one.
func at(t any, layout string) string {
	if p, ok := t.(*fault.Time); ok {
		t = *p
	}
	moment, _ := t.(fault.Time)
	return time.Time(moment).UTC().Format(layout)
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func plural(n int, what string) string { return grouped(n) + " " + what + either(n == 1, "", "s") }

// lasted writes a length of time in two units at most.
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

// printable replaces what would not be seen, or would change how the rest is shown.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
