package summary

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

//go:embed session.txt
var sessionText string

var texts = template.Must(template.New("session").Funcs(template.FuncMap{
	"at":     func(t fault.Time) string { return time.Time(t).UTC().Format("15:04:05.000") },
	"mark":   func(r verdict.Result) string { return marks[rank(r)].text },
	"sorted": sorted,
	"table":  table,
}).Parse(sessionText))

// rank is the order of results: what matters most is read last, at the end of what was printed.
func rank(r verdict.Result) int {
	switch {
	case r.Status == verdict.NotExercised:
		return 0
	case r.Status != verdict.Broken:
		return 1
	case r.Level == verdict.Should:
		return 2
	}
	return 3
}

func sorted(results []verdict.Result) []verdict.Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b verdict.Result) int { return rank(a) - rank(b) })
}

// marks stand before a rule, by its rank.
var marks = []struct {
	text  string
	color term.Color
}{{"   -  ", term.Plain}, {"  ok  ", term.Good}, {"better", term.Warn}, {"BROKEN", term.Bad}}

// Count counts the rules with a status, in all sessions together.
func (s *Summary) Count(status verdict.Status) (n int) {
	for _, is := range s.statuses() {
		if is == status {
			n++
		}
	}
	return n
}

// Unmet counts the faults of profiles that came to be in no session.
func (s *Summary) Unmet() int { return len(s.unmet()) }

// Text writes what the sessions have shown, with the first evidence of the rules that were broken. Files have all of it. One session
// alone has a table of its rules; several have one of the sessions.
func (s *Summary) Text(w io.Writer, style term.Style) error {
	var b strings.Builder
	var err error
	if len(s.Sessions) == 1 {
		err = texts.ExecuteTemplate(&b, "session", s.Sessions[0])
	} else {
		err = texts.ExecuteTemplate(&b, "sessions", s)
	}
	text := judge.PrintableLines(b.String()) // colours are not
	for _, m := range marks {
		text = strings.ReplaceAll(text, "\n"+m.text+"  ", "\n"+style.Paint(m.color, m.text)+"  ")
	}
	b.Reset()
	err = cmp.Or(err, texts.ExecuteTemplate(&b, "conclusion", s))
	head, rest, _ := strings.Cut(judge.PrintableLines(b.String()), ":")
	color := cmp.Or(map[verdict.Conclusion]term.Color{verdict.Wrong: term.Bad, verdict.Improvable: term.Warn}[s.Verdict()], term.Good)
	if err == nil {
		_, err = io.WriteString(w, text+style.Paint(color, head)+":"+rest)
	}
	return err
}

// table has a line for each session.
func table(sessions []Session) (string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULTS\tSEED\tLABEL\tVERDICT\tREQUESTS\tBROKEN")
	for _, n := range sessions {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%s\n", n.Disturbed, n.Seed, cmp.Or(n.Label, "-"), n.Verdict.Verdict, n.Recorded,
			cmp.Or(strings.Join(n.Broken(), ", "), "-"))
	}
	err := w.Flush()
	return b.String(), err
}

// Break is a rule that was broken, as the first session shows it that broke it.
type Break struct {
	verdict.Result
	In   string // the session
	More int    // further ones that broke it
}

// Broken are the rules that were broken, those last that say must.
func (s *Summary) Broken() (rules []Break) {
	for _, n := range s.Sessions {
		for _, r := range n.Results {
			if r.Status != verdict.Broken {
				continue
			}
			if at := slices.IndexFunc(rules, func(b Break) bool { return b.Rule == r.Rule }); at >= 0 {
				rules[at].More++
			} else {
				rules = append(rules, Break{Result: r, In: n.Name()})
			}
		}
	}
	return slices.SortedStableFunc(slices.Values(rules), func(a, b Break) int { return rank(a.Result) - rank(b.Result) })
}

// Broken are the rules that were broken in the session, those last that say must.
func (n Session) Broken() (rules []string) {
	for _, r := range sorted(n.Results) {
		if r.Status == verdict.Broken {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// Name tells the session from the others of a summary.
func (n Session) Name() string {
	name := fmt.Sprintf("%s, seed %d", n.Disturbed, n.Seed)
	if n.Label != "" {
		name += ", " + n.Label
	}
	return name
}
