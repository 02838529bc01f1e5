package commands

import (
	"cmp"
	_ "embed"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Statuses of a rule, and conclusions.
const (
	ruleBroken       = "broken"
	ruleNotExercised = "not_exercised"
	clientWrong      = "wrong"
	clientImprovable = "could_be_better"
	levelShould      = "should"
)

//go:embed verdict.txt
var verdictText string

// rank is the order of results: what matters most is read last, at the end of what was printed.
func rank(r client.RuleResult) int {
	switch {
	case r.Status == ruleNotExercised:
		return 0
	case r.Status != ruleBroken:
		return 1
	case r.Level == levelShould:
		return 2
	}
	return 3
}

// marks stand before a rule, by its rank.
var marks = []struct {
	text  string
	color term.Color
}{{"   -  ", term.Plain}, {"  ok  ", term.Good}, {"better", term.Warn}, {"BROKEN", term.Bad}}

// unmet counts the faults of the profile that the client has not met.
func unmet(v *client.Verdict) (n int) {
	for _, f := range v.Faults {
		if f.Times == 0 {
			n++
		}
	}
	return n
}

// writeVerdict writes a table of the rules, with the first evidence of those that were broken. Files have all of it.
func writeVerdict(w io.Writer, style term.Style, v *client.Verdict) error {
	sorted := *v
	sorted.Results = slices.SortedStableFunc(slices.Values(v.Results), func(a, b client.RuleResult) int { return rank(a) - rank(b) })
	var b strings.Builder
	err := template.Must(template.New("verdict").Option("missingkey=zero").Funcs(template.FuncMap{
		"mark": func(r client.RuleResult) string { return marks[rank(r)].text },
	}).Parse(verdictText)).Execute(&b, struct {
		*client.Verdict
		Unmet int
	}{&sorted, unmet(v)})
	if err != nil {
		return err
	}
	text := judge.PrintableLines(b.String()) // colours are not
	for _, m := range marks {
		text = strings.ReplaceAll(text, "\n"+m.text+"  ", "\n"+style.Paint(m.color, m.text)+"  ")
	}
	end := strings.LastIndex(text, "The client")
	head, rest, _ := strings.Cut(text[end:], ":")
	color := cmp.Or(map[string]term.Color{clientWrong: term.Bad, clientImprovable: term.Warn}[v.Verdict], term.Good)
	_, err = io.WriteString(w, text[:end]+style.Paint(color, head)+":"+rest)
	return err
}
