package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Normalize gives arguments as cobra reads them: flags with one dash, as older scripts have them (-url, -to=3), get their second
// one, and "help" as the only argument of a command asks for its help. What follows "--" is left alone.
func Normalize(root *cobra.Command, args []string) []string {
	known := longFlags(root)
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && arg[0] == '-' && known[name] {
			args[i] = "-" + arg
		}
	}
	if last := len(args) - 1; last > 0 && isHelp(args[last]) {
		if c, rest, err := root.Find(args[:last]); err == nil && c != root && len(rest) == 0 {
			args[last] = "--help"
		}
	}
	return args
}

func isHelp(arg string) bool { return arg == "help" || arg == "-h" || arg == "--help" }

// longFlags are the names of all flags of all commands, those that cobra adds included.
func longFlags(root *cobra.Command) map[string]bool {
	names := map[string]bool{"help": true, "version": true}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { names[f.Name] = true }
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(root)
	return names
}

// likelyFlag suggests what an unknown flag may be meant to be.
func likelyFlag(c *cobra.Command, err error) string {
	_, given, found := strings.Cut(err.Error(), "unknown flag: --")
	if !found {
		return ""
	}
	best, least := "", 3 // edits at most
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(given, f.Name); d < least && !f.Hidden {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return ""
	}
	return ": did you mean --" + best + "?"
}

// distance is how many letters must be added, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
