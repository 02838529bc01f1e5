package command

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// The help of a command group shows one example for each subcommand, but not more than this many.
const examplesOfGroup = 3

func examplesOf(root *cobra.Command, text string) map[*cobra.Command][]string {
	own := map[*cobra.Command][]string{}
	call := regexp.MustCompile(`(?:^|[ (])` + regexp.QuoteMeta(root.Name()) + ` ([^)|>;]*)`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		found := call.FindStringSubmatch(line)
		if found == nil || strings.HasPrefix(line, "#") {
			continue
		}
		if c, _, err := root.Find(strings.Fields(found[1])); err == nil {
			own[c] = append(own[c], line)
		}
	}
	return own
}

func addExamples(c *cobra.Command, own map[*cobra.Command][]string) (first string) {
	lines := own[c]
	for _, below := range c.Commands() {
		first := addExamples(below, own)
		if len(own[c]) == 0 && first != "" && len(lines) < examplesOfGroup {
			lines = append(lines, first)
		}
	}
	if c.Example == "" && len(lines) > 0 {
		c.Example = "  " + strings.Join(lines, "\n  ")
	}
	first, _, _ = strings.Cut(strings.TrimSpace(c.Example), "\n")
	return first
}
