// Package command is shared by the command lines of this repository's programs. It defines exit codes, usage errors and help.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	Succeeded   = 0
	Failed      = 1
	WrongUsage  = 2   // wrong flags, arguments or configuration, or the service found the input invalid; the command did nothing
	Canceled    = 3   // the job was canceled
	TimedOut    = 4   // the wait timed out
	Interrupted = 130 // ended by Ctrl-C
)

// Others is the help group of the commands "help" and "completion".
const Others = "others"

// Help lists commands in the order that a program adds them, most important first.
func init() { cobra.EnableCommandSorting = false }

// Exit is an error with the program's exit code. If Err is nil, no error is printed.
type Exit struct {
	Code int
	Err  error
}

// Error returns the text to print, or "".
func (e *Exit) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Exit) Unwrap() error { return e.Err }

// Code returns an error that ends the program with an exit code and without output. It is nil for 0.
func Code(code int) error {
	if code == Succeeded {
		return nil
	}
	return &Exit{Code: code}
}

// Usagef returns a usage error.
func Usagef(format string, args ...any) error { return &Exit{WrongUsage, fmt.Errorf(format, args...)} }

// ParseTime parses an RFC 3339 time, in which t and z may be lower-case.
func ParseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	return at.UTC(), err
}

// Execute runs the program of root and returns its exit code and the error to print. Errors other than Exit have the exit code Failed. Each
// line of `examples` calls one command, and the help of this command shows the line.
func Execute(ctx context.Context, root *cobra.Command, examples string, args []string, stdout, stderr io.Writer) (code int, err error) {
	root.SetOut(stdout) // before prepare, because cobra's command "completion" copies the writer
	root.SetErr(stderr)
	prepare(root)
	addExamples(root, examplesOf(root, examples))
	root.SetArgs(withHelpFlag(root, args))
	err = root.ExecuteContext(ctx)
	exit, known := errors.AsType[*Exit](err)
	switch {
	case err == nil:
		return Succeeded, nil
	case known && exit.Err == nil:
		return exit.Code, nil
	case known:
		return exit.Code, err
	}
	return Failed, err
}

func prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usagef("%s (%s --help)", strings.ReplaceAll(err.Error(), "\n", " "), c.CommandPath())
	})
	if root.ContainsGroup(Others) {
		root.SetHelpCommandGroupID(Others)
		root.SetCompletionCommandGroupID(Others)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if root.Args == nil {
		Group(root)
	}
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Use, c.Short, c.Long, c.Run, c.RunE = "help [COMMAND | TOPIC]", "Help about a command or a topic", "", nil, strictHelp(root)
		case "completion":
			Group(c)
			c.Long = "Writes a script that completes commands, flags and some values. To load it for this session:\n\n" +
				"  source <(" + root.Name() + " completion bash)\n\nTo load it for every session, see the help for your shell."
		}
	}
}

// Group makes c a command that only has subcommands. Called without a subcommand, c prints its usage and fails.
func Group(c *cobra.Command) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return Unknown(c, args[0])
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		c.SetOut(c.ErrOrStderr())
		_ = c.Usage()
		return Code(WrongUsage)
	}
	return c
}

// Unknown returns an error for an unknown subcommand of c, with suggestions.
func Unknown(c *cobra.Command, name string) error {
	c.SuggestionsMinimumDistance = 2
	meant := ""
	if near := c.SuggestionsFor(name); len(near) > 0 {
		meant = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	return Usagef("there is no command %q%s (%s --help)", strings.Join([]string{c.CommandPath(), name}, " "), meant, c.CommandPath())
}

// New makes a command that calls `run`. `use` is the command's name and its arguments: KIND is required, [KIND] is optional, and KIND...
// accepts several.
func New(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: run}
	least, most := 0, 0
	for _, arg := range strings.Fields(use)[1:] {
		if strings.HasPrefix(arg, "-") { // the arguments end at the first flag
			break
		}
		if !strings.HasPrefix(arg, "[") {
			least++
		}
		if most++; strings.Contains(arg, "...") {
			most = -1
			break
		}
	}
	c.Args = Between(least, most)
	if c.Name() == "list" {
		c.Aliases = []string{"ls"}
	}
	return c
}

// JSON adds the flag --json.
func JSON(f *pflag.FlagSet, into *bool) {
	f.BoolVar(into, "json", false, "print JSON to standard output")
}

// Exactly accepts exactly n arguments.
func Exactly(n int) cobra.PositionalArgs { return Between(n, n) }

// Between requires at least `least` and at most `most` arguments. If `most` is -1, there is no limit.
func Between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("an argument is missing; usage: %s (%s --help)", c.UseLine(), c.CommandPath())
		case most >= 0 && len(args) > most:
			return Usagef("%s does not know %q; usage: %s (%s --help)",
				c.CommandPath(), strings.Join(args[most:], " "), c.UseLine(), c.CommandPath())
		}
		return nil
	}
}

// Only returns a check that accepts at most one argument, which must be one of the words.
func Only(words ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 0 && !slices.Contains(words, args[0]) {
			return Usagef("%s does not know %q, only %s (%s --help)", c.CommandPath(), args[0], strings.Join(words, ", "), c.CommandPath())
		}
		return Between(0, 1)(c, args)
	}
}

// strictHelp makes "help" fail for an unknown command or topic.
func strictHelp(root *cobra.Command) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 1 && isHelp(args[0]) {
			return c.Help()
		}
		found, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return Unknown(found, rest[0])
		}
		found.InitDefaultHelpFlag()
		found.InitDefaultVersionFlag()
		return found.Help()
	}
}

// If the last argument is "help", as in "jobs help", withHelpFlag replaces it with --help.
func withHelpFlag(root *cobra.Command, args []string) []string {
	if last := len(args) - 1; last > 0 && isHelp(args[last]) {
		if c, rest, err := root.Find(args[:last]); err == nil && c != root && len(rest) == 0 {
			return append(slices.Clone(args[:last]), "--help")
		}
	}
	return args
}

func isHelp(arg string) bool { return arg == "help" || arg == "-h" || arg == "--help" }

// Man returns a hidden command that writes the man pages of root, for packages. If the environment variable SOURCE_DATE_EPOCH is set, the
// pages have this date.
func Man(root *cobra.Command, version string) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write man pages into a folder", Hidden: true, Args: Exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("create the folder for man pages: %w", err)
			}
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{
				Section: "1", Source: root.Name() + " " + version, Manual: "ForgeRun",
			}, args[0])
		},
	}
}
