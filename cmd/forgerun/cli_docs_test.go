package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shownHelp is a block of the page with what the program prints.
var shownHelp = regexp.MustCompile("(?ms)^```text\n\\$ forgerun ([^\n]*)\n(.*?)^```$")

// What docs/reference/cli.md shows of the program's help is what the program prints.
func TestPageListsTheHelpOfTheProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/cli.md")
	require.NoError(t, err)
	var shown []string
	for _, block := range shownHelp.FindAllStringSubmatch(string(page), -1) {
		code, stdout, _ := runWith(t, nil, strings.Fields(block[1])...)
		require.Zero(t, code, block[1])
		require.Equal(t, stdout, block[2], "forgerun %s in docs/reference/cli.md", block[1])
		shown = append(shown, block[1])
	}
	require.Subset(t, shown, []string{"--help", "jobs submit --help", "webhooks listen --help", "admin --help", "help exit-codes"})
}

// Every command that the page calls in its examples exists.
func TestPageListsCommandsThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/cli.md")
	require.NoError(t, err)
	root := (&program{getenv: func(string) string { return "" }}).root()
	calls := regexp.MustCompile(`(?m)^forgerun ([a-z-]+(?: [a-z-]+)?)`).FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(calls), 40)
	for _, call := range calls {
		if words := strings.Fields(call[1]); words[0] != "help" && words[0] != "completion" {
			found, rest, err := root.Find(words)
			require.NoError(t, err)
			require.True(t, len(rest) == 0 || !found.HasAvailableSubCommands(), "forgerun %s", call[1])
		}
	}
}
