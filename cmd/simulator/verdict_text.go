package main

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
)

// shown is how much of the evidence of a rule a terminal gets. Files have all.
const shown = 2

// marks stand before a rule.
var marks = map[string]string{"held": "  ok  ", ruleBroken: "BROKEN", ruleNotExercised: "   -  "}

// writeVerdict writes a table of the rules, with the evidence of those that were broken.
func writeVerdict(w io.Writer, v *client.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d requests", v.Exchanges)
	if v.Profile != "" {
		fmt.Fprintf(&b, ", profile %s, seed %d", v.Profile, v.Seed)
	}
	b.WriteString("\n\n")
	for _, r := range v.Results {
		fmt.Fprintf(&b, "%s  %-22s %s", marks[r.Status], r.Rule, r.Title)
		switch r.Status {
		case ruleBroken:
			fmt.Fprintf(&b, " (%d of %d times)\n", r.Failures, r.Times)
			for _, e := range r.Evidence[:min(len(r.Evidence), shown)] {
				fmt.Fprintf(&b, "          %s  %s\n            answer:   %s\n", e.At.UTC().Format("15:04:05.000"), e.Request, e.Answer)
				if e.Fault != "" {
					fmt.Fprintf(&b, "            fault:    %s\n", e.Fault)
				}
				fmt.Fprintf(&b, "            found:    %s\n            expected: %s\n", e.Found, e.Expected)
			}
			fmt.Fprintf(&b, "          See %s\n", r.See)
		case ruleNotExercised:
			fmt.Fprintf(&b, "\n          Not exercised. What would: %s\n", r.Exercise)
		default:
			fmt.Fprintf(&b, " (%d)\n", r.Times)
		}
	}
	fmt.Fprintf(&b, "\nThe client is %s: %d rules kept, %d broken, %d not exercised.\n",
		map[string]string{"right": "right", clientWrong: "wrong", clientIncomplete: "not wrong, as far as this shows"}[v.Verdict],
		v.Counts["held"], v.Counts[ruleBroken], v.Counts[ruleNotExercised])
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, judge.Printable(strings.TrimSuffix(line, "\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}
