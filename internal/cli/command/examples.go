package command

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// examplesOfGroup is the number of examples of a command with subcommands: the first example of each subcommand.
const examplesOfGroup = 3

// examplesOf groups the lines of text by the first command that they call.
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

// addExamples adds examples to c and its subcommands, and returns the first one of c.
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
