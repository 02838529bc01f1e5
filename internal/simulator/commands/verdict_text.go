package commands

import (
	"fmt"
	"io"
	"strings"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Statuses of a rule, and conclusions.
const (
	ruleBroken       = "broken"
	ruleNotExercised = "not_exercised"
	clientWrong      = "wrong"
	clientIncomplete = "incomplete"
	clientImprovable = "could_be_better"
	levelShould      = "should"
)

// shown is how much of the evidence of a rule a terminal gets. Files have all.
const shown = 2

// marks stand before a rule.
var marks = map[string]string{"held": "  ok  ", ruleBroken: "BROKEN", ruleNotExercised: "   -  "}

// writeFaults writes which faults happened to which requests, and which did not.
func writeFaults(b *strings.Builder, faults []client.FaultCount) {
	of := ""
	for _, f := range faults {
		if f.Of != of {
			of = f.Of
			fmt.Fprintf(b, "  faults of %d %s:\n", f.Requests, f.Of)
		}
		if f.Times == 0 {
			fmt.Fprintf(b, "    %5s  %s\n", "none", f.Fault)
			continue
		}
		fmt.Fprintf(b, "    %5d  %s\n", f.Times, f.Fault)
	}
}

// unmet counts the faults of the profile that the client has not met.
func unmet(v *client.Verdict) (n int) {
	for _, f := range v.Faults {
		if f.Times == 0 {
			n++
		}
	}
	return n
}

// writeVerdict writes a table of the rules, with the evidence of those that were broken.
func writeVerdict(w io.Writer, v *client.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d requests", v.Exchanges)
	if v.Profile != "" {
		fmt.Fprintf(&b, ", profile %s, seed %d", v.Profile, v.Seed)
	}
	b.WriteString("\n")
	writeFaults(&b, v.Faults)
	b.WriteString("\n")
	for _, r := range v.Results {
		mark := marks[r.Status]
		if r.Status == ruleBroken && r.Level == levelShould {
			mark = "better"
		}
		fmt.Fprintf(&b, "%s  %-22s %s", mark, r.Rule, r.Title)
		switch r.Status {
		case ruleBroken:
			fmt.Fprintf(&b, " (%d of %d times)\n", r.Failures, r.Times)
			for _, e := range r.Evidence[:min(len(r.Evidence), shown)] {
				writeMoment(&b, e.Before)
				writeMoment(&b, e.Request)
				more := ""
				if e.Times > 1 {
					more = fmt.Sprintf(" (%d times)", e.Times)
				}
				fmt.Fprintf(&b, "            found:    %s%s\n            expected: %s\n", e.Found, more, e.Expected)
			}
			fmt.Fprintf(&b, "          %q\n          %s\n", r.Quote, r.See)
		case ruleNotExercised:
			fmt.Fprintf(&b, "\n          Not exercised. What would: %s\n", r.Exercise)
		default:
			fmt.Fprintf(&b, " (%d)\n", r.Times)
		}
	}
	fmt.Fprintf(&b, "\nThe client %s: %d rules kept, %d broken, %d not exercised.",
		map[string]string{"right": "is right", clientWrong: "is wrong", clientImprovable: "is not wrong, and could be better",
			clientIncomplete: "is not wrong, as far as this shows"}[v.Verdict],
		v.Counts["held"], v.Counts[ruleBroken], v.Counts[ruleNotExercised])
	if n := unmet(v); n > 0 {
		fmt.Fprintf(&b, " It has not met %d of the faults that the profile is about.", n)
	}
	b.WriteString("\n")
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, judge.Printable(strings.TrimSuffix(line, "\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func writeMoment(b *strings.Builder, m *client.Moment) {
	if m == nil {
		return
	}
	fmt.Fprintf(b, "          %s  %s\n            answer:   %s\n", m.At.UTC().Format("15:04:05.000"),
		strings.Join(append([]string{m.Request}, m.Headers...), ", "), m.Answer)
	if m.Fault != "" {
		fmt.Fprintf(b, "            fault:    %s\n", m.Fault)
	}
}
