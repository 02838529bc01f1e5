package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Man is a hidden command that writes the man pages of root, for packages. SOURCE_DATE_EPOCH sets their date.
func Man(root *cobra.Command, version string) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write man pages into a folder", Hidden: true, Args: Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("the folder for man pages: %w", err)
			}
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{
				Section: "1", Source: root.Name() + " " + version, Manual: "ForgeRun",
			}, args[0])
		},
	}
}
