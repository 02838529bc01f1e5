package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestHelpTextsHaveCommands(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "forgerun"}
	Add(root, &Shell{Getenv: func(string) string { return "" }})
	for line := range strings.Lines(helpTexts) {
		head, isHead := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if name, _, topic := strings.Cut(head, ": "); isHead {
			if topic {
				head = name
			}
			c, rest, err := root.Find(strings.Fields(head))
			require.NoError(t, err, head)
			require.Empty(t, rest, head)
			require.NotEmpty(t, c.Long, head)
		}
	}
}
