// Package cli is the command line for users and operators of ForgeRun. It talks to the service only over HTTP, and shares no code with it.
package cli

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Add adds the commands to root, in their groups.
func Add(root *cobra.Command, s *Shell) {
	add := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	add("use", "Use the service:", s.jobs(), s.batch(), s.schedules(), s.events(), s.webhooks(), s.testbed(), s.kinds(), s.login(),
		s.contexts())
	add("operate", "Operate the service:", s.adminCommand(), s.clients(), s.keys(),
		s.forOperators(s.cmd("open", "Open the console in the browser", open)))
	addHelp(root)
}

func open(f *pflag.FlagSet) run {
	printOnly := f.Bool("print", false, "only print the address")
	return func(c *call) error {
		_, base, err := c.operator()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.Stdout, base+"/")
		if *printOnly {
			return nil
		}
		program, arguments := browser(c.Getenv)
		start := exec.CommandContext(c, program, append(arguments, base+"/")...)
		start.Stderr, start.Env = term.Raw(c.Stderr), os.Environ()
		if err := start.Run(); err != nil {
			return fmt.Errorf("cannot start the browser with %s: %w; open the address above", program, err)
		}
		return nil
	}
}

func browser(getenv func(string) string) (program string, arguments []string) {
	if program := getenv("BROWSER"); program != "" {
		return program, nil
	}
	switch runtime.GOOS {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	default:
		return "xdg-open", nil
	}
}

//go:embed help.txt
var helpTexts string

// addHelp sets each command's long help from help.txt. A section "# NAME: TITLE" becomes a help topic, which "forgerun help NAME" shows.
func addHelp(root *cobra.Command) {
	for section := range strings.SplitSeq(strings.TrimPrefix(helpTexts, "# "), "\n# ") {
		head, text, _ := strings.Cut(section, "\n")
		if topic, title, ok := strings.Cut(head, ": "); ok {
			root.AddCommand(&cobra.Command{Use: topic, Short: title, Long: strings.TrimRight(text, "\n") + "\n"})
		} else if c, rest, err := root.Find(strings.Fields(head)); err == nil && len(rest) == 0 {
			c.Long = strings.TrimSpace(text)
		}
	}
}
