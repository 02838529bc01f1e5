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
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

//go:embed session.txt
var sessionText string

var texts = template.Must(template.New("session").Funcs(template.FuncMap{
	"at":     func(t fault.Time) string { return time.Time(t).UTC().Format("15:04:05.000") },
	"mark":   func(r verdict.Result) string { return marks[rank(r)].text },
	"sorted": sorted, "untested": untested,
	"table": table, "weight": weight,
}).Parse(sessionText))

// rank orders results by importance. Text prints the most important results last. The rank is also the index into `marks`.
func rank(r verdict.Result) int {
	switch {
	case r.Status == verdict.Fail:
		return 4
	case isKnown(r):
		return 3
	case r.Status == verdict.Warn:
		return 2
	case r.Status == verdict.OK:
		return 1
	}
	return 0
}

// isKnown reports whether the baseline lists this broken rule. The method judge sets the status of such a rule to Warn and keeps the level
// Must.
func isKnown(r verdict.Result) bool { return r.Status == verdict.Warn && r.Level == verdict.Must }

func weight(r verdict.Result) string {
	if isKnown(r) {
		return "known"
	}
	return string(r.Level)
}

func sorted(results []verdict.Result) []verdict.Result {
	tested := slices.DeleteFunc(slices.Clone(results), func(r verdict.Result) bool { return r.Status == verdict.NotTested })
	slices.SortStableFunc(tested, func(a, b verdict.Result) int { return rank(a) - rank(b) })
	return tested
}

type reason struct{ Reason, Rules string }

func untested(results []verdict.Result) (all []reason) {
	for _, r := range verdict.Having(results, verdict.NotTested) {
		if at := slices.IndexFunc(all, func(other reason) bool { return other.Reason == r.Reason }); at >= 0 {
			all[at].Rules += ", " + r.Rule
		} else {
			all = append(all, reason{r.Reason, r.Rule})
		}
	}
	return all
}

// These texts are printed in front of rules. The index is the rank.
var marks = []struct {
	text  string
	color term.Color
}{{"  -   ", term.Plain}, {"  ok  ", term.Good}, {" WARN ", term.Warn}, {" KNOWN", term.Warn}, {" FAIL ", term.Bad}}

// Text writes the results with the first evidence of each broken rule. For a single session, Text writes a table of rules. For several
// sessions, it writes a table of sessions.
func (s *Summary) Text(w io.Writer, style term.Style) error {
	var b strings.Builder
	var err error
	if len(s.Sessions) == 1 {
		err = texts.ExecuteTemplate(&b, "session", s.Sessions[0])
	} else {
		err = texts.ExecuteTemplate(&b, "sessions", s)
	}
	text := term.MaskedLines(b.String()) // before colors are added, because MaskedLines would escape them
	for _, m := range marks {
		text = strings.ReplaceAll(text, "\n"+m.text+"  ", "\n"+style.Paint(m.color, m.text)+"  ")
	}
	b.Reset()
	err = cmp.Or(err, texts.ExecuteTemplate(&b, "conclusion", s))
	color := map[verdict.Conclusion]term.Color{
		verdict.Passed: term.Good, verdict.Warned: term.Warn, verdict.NothingJudged: term.Warn, verdict.Failed: term.Bad,
	}[s.Verdict()]
	head, rest, _ := strings.Cut(term.MaskedLines(b.String()), "\n")
	if err == nil {
		_, err = io.WriteString(w, text+style.Paint(color, head)+"\n"+rest)
	}
	return err
}

func table(sessions []Session) (string, error) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERDICT\tFAULTS\tSEED\tLABEL\tREQUESTS\tFAIL\tWARN")
	for _, n := range ByFailure(sessions) {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", n.Verdict.Verdict.Words(), n.Disturbed, n.Seed, cmp.Or(n.Label, "-"), n.Recorded,
			cmp.Or(strings.Join(n.Having(verdict.Fail), ", "), "-"), cmp.Or(strings.Join(n.Having(verdict.Warn), ", "), "-"))
	}
	err := w.Flush()
	return b.String(), err
}

// ByFailure sorts the sessions by verdict, the worst first.
func ByFailure(sessions []Session) []Session {
	return slices.SortedStableFunc(slices.Values(sessions), func(a, b Session) int {
		return cmp.Or(slices.Index(conclusions, b.Verdict.Verdict)-slices.Index(conclusions, a.Verdict.Verdict),
			b.Counts[verdict.Fail]-a.Counts[verdict.Fail], b.Counts[verdict.Warn]-a.Counts[verdict.Warn])
	})
}

// Break is a broken rule, with the first session that broke it.
type Break struct {
	verdict.Result
	In   string // name of the session
	More int    // number of further sessions that broke the rule
}

// Broken returns the broken rules, "must" rules last.
func (s *Summary) Broken() (rules []Break) {
	for _, n := range s.Sessions {
		for _, r := range n.Results {
			if !r.Status.Broken() {
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

// Untested returns the rules that no session tested.
func (s *Summary) Untested() []verdict.Result { return verdict.Having(s.Results(), verdict.NotTested) }

// ByWeight returns the broken rules, "must" rules first.
func (s *Summary) ByWeight() []Break {
	all := s.Broken()
	slices.SortStableFunc(all, func(a, b Break) int { return rank(b.Result) - rank(a.Result) })
	return all
}

// Having returns the ids of the rules that have the status.
func (n Session) Having(status verdict.Status) (rules []string) {
	for _, r := range verdict.Having(n.Results, status) {
		rules = append(rules, r.Rule)
	}
	return rules
}

// Name identifies the session within a summary.
func (n Session) Name() string {
	name := fmt.Sprintf("%s, seed %d", n.Disturbed, n.Seed)
	if n.Label != "" {
		name += ", " + n.Label
	}
	return name
}
