// Package verdict writes what a test bed's session has shown of a client: for a terminal, for CI servers, and as a page.
package verdict

import (
	"fmt"
	"io"
	"strings"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// The statuses of a rule, and the conclusions.
const (
	Broken       = "broken"
	NotExercised = "not_exercised"
	Wrong        = "wrong"
	Incomplete   = "incomplete"
)

// shown is how much of the evidence of a rule a terminal gets. Files have all.
const shown = 2

// marks stand before a rule.
var marks = map[string]string{"held": "  ok  ", Broken: "BROKEN", NotExercised: "   -  "}

// WriteText writes a table of the rules, with the evidence of those that were broken.
func WriteText(w io.Writer, v *client.Verdict) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d requests", v.Exchanges)
	if v.Profile != "" {
		fmt.Fprintf(&b, ", profile %s, seed %d", v.Profile, v.Seed)
	}
	b.WriteString("\n\n")
	for _, r := range v.Results {
		fmt.Fprintf(&b, "%s  %-22s %s", marks[r.Status], r.Rule, r.Title)
		switch r.Status {
		case Broken:
			fmt.Fprintf(&b, " (%d of %d times)\n", r.Failures, r.Times)
			for _, e := range r.Evidence[:min(len(r.Evidence), shown)] {
				fmt.Fprintf(&b, "          %s  %s\n            answer:   %s\n", e.At.UTC().Format("15:04:05.000"), e.Request, e.Answer)
				if e.Fault != "" {
					fmt.Fprintf(&b, "            fault:    %s\n", e.Fault)
				}
				fmt.Fprintf(&b, "            found:    %s\n            expected: %s\n", e.Found, e.Expected)
			}
			fmt.Fprintf(&b, "          See %s\n", r.See)
		case NotExercised:
			fmt.Fprintf(&b, "\n          Not exercised. What would: %s\n", r.Exercise)
		default:
			fmt.Fprintf(&b, " (%d)\n", r.Times)
		}
	}
	fmt.Fprintf(&b, "\nThe client is %s: %d rules kept, %d broken, %d not exercised.\n",
		map[string]string{"right": "right", Wrong: "wrong", Incomplete: "not wrong, as far as this shows"}[v.Verdict],
		v.Counts["held"], v.Counts[Broken], v.Counts[NotExercised])
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, judge.Printable(strings.TrimSuffix(line, "\n"))+"\n"); err != nil {
			return err
		}
	}
	return nil
}
