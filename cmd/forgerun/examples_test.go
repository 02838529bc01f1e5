package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// The help of each command has at least two examples, and the program accepts all of them.
func TestExamplesOfCommands(t *testing.T) {
	t.Parallel()
	p := &program{getenv: func(string) string { return "" }, stdout: t.Output(), stderr: t.Output()}
	root := p.root()
	_, err := command.Execute(t.Context(), root, exampleCalls, []string{"version"}, t.Output(), t.Output())
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"key.txt", "token.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	record := "forgerun() { { printf '%s\\1' \"$@\"; printf '\\2'; } >> calls; echo ID; }\n"
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			check(below)
		}
		if c.Hidden || c.IsAdditionalHelpTopicCommand() || c.Name() == "help" {
			return
		}
		require.GreaterOrEqual(t, strings.Count(c.Example, "\n"), 1, "examples of %s", c.CommandPath())
		for line := range strings.Lines(strings.ReplaceAll(c.Example, "\\\n", "")) {
			shell := exec.CommandContext(t.Context(), "bash", "-c", record+line)
			shell.Dir, shell.Env = dir, []string{"HOME=" + dir}
			_ = shell.Run() // ignore the error: the examples also call programs that are not installed here
			calls := readText(t, filepath.Join(dir, "calls"))
			require.NoError(t, os.Remove(filepath.Join(dir, "calls")))
			for call := range strings.SplitSeq(strings.TrimSuffix(calls, "\x02"), "\x02") {
				require.NoError(t, understands(root, strings.Split(strings.TrimSuffix(call, "\x01"), "\x01")), "%s: %s", c.CommandPath(), line)
			}
		}
	}
	check(root)
}

func understands(root *cobra.Command, args []string) error {
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
