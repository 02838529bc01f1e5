package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// Shell has the inputs, outputs and global flags of one run.
type Shell struct {
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string

	flags   access.Flags
	form    string
	quiet   bool
	verbose bool
}

type call struct {
	context.Context
	*Shell
	*output.Printer
	args []string
}

type (
	run func(c *call) error
	// action declares a command's flags, and returns the function that runs the command.
	action func(flags *pflag.FlagSet) run
)

// cmd makes a command. `use` is the command's name and arguments, such as "get JOB".
func (s *Shell) cmd(use, short string, do action) *cobra.Command {
	var execute run
	c := command.New(use, short, func(c *cobra.Command, args []string) error {
		ctx, cancel := within(c)
		defer cancel()
		p := &output.Printer{Form: s.form, Quiet: s.quiet, Out: s.Stdout, Style: term.Of(s.Stdout, s.Getenv), Now: time.Now}
		if err := p.Check(); err != nil {
			return command.Usagef("--output: %w", err)
		}
		return s.explain(ctx, execute(&call{ctx, s, p, args}))
	})
	execute = do(c.Flags())
	return c
}

// group makes a command that only has subcommands. `names` contains the name, then aliases: "jobs job".
func (s *Shell) group(names, short string, below ...*cobra.Command) *cobra.Command {
	all := strings.Fields(names)
	c := command.Group(&cobra.Command{Use: all[0], Aliases: all[1:], Short: short})
	c.AddCommand(below...)
	return c
}

var errTimedOut = errors.New("--timeout was reached")

func within(c *cobra.Command) (context.Context, context.CancelFunc) {
	if timeout, _ := c.Flags().GetDuration("timeout"); timeout > 0 {
		return context.WithTimeoutCause(c.Context(), timeout, errTimedOut)
	}
	return context.WithCancel(c.Context())
}

func timeoutFlag(f *pflag.FlagSet, with string) {
	f.Duration("timeout", 0, with+"maximum time to wait; 0: no limit")
}

func (s *Shell) forClients(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&s.flags.URL, "url", "", "`address` of the service (FORGERUN_URL)")
	f.StringVar(&s.flags.Key, "key", "", "API `key` (FORGERUN_API_KEY is better: other users see arguments in ps)")
	return s.commonFlags(c)
}

func (s *Shell) forOperators(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&s.flags.AdminURL, "admin-url", "", "`address` of the admin listener (FORGERUN_ADMIN_URL)")
	f.StringVar(&s.flags.AdminToken, "admin-token", "",
		"operator's `token` (FORGERUN_ADMIN_TOKEN is better: other users see arguments in ps)")
	return s.commonFlags(c)
}

func (s *Shell) commonFlags(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	if f.Lookup("output") != nil {
		return c
	}
	f.StringVar(&s.flags.Context, "context", "", "`name` of the context to use (FORGERUN_CONTEXT)")
	f.StringVarP(&s.form, "output", "o", "table", "output `format`: table, wide or json")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "print only ids, one per line")
	f.BoolVar(&s.verbose, "verbose", false, "show the request that failed")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Forms, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("context", s.completeContext)
	return c
}

func (s *Shell) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	contexts, err := access.LoadContexts(s.Getenv)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return contexts.Names(), cobra.ShellCompDirectiveNoFileComp
}

func (s *Shell) finder() access.Finder { return access.Finder{Flags: s.flags, Getenv: s.Getenv} }

func (s *Shell) client() (*client.Client, error) {
	url, key, err := s.finder().Client()
	if err != nil {
		return nil, err
	}
	return s.clientAt(url, key)
}

func (s *Shell) clientAt(url, key string) (*client.Client, error) {
	c, err := client.New(client.Config{URL: url, Key: key, UserAgent: "forgerun-cli/" + s.Version})
	if err != nil {
		return nil, command.Usagef("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return c, nil
}

const adminPath = "/admin/v1"

// `base` is the address of the operator API, without the path /admin/v1.
func (s *Shell) operator() (admin *client.Client, base string, err error) {
	base, token, err := s.finder().Operator()
	if err != nil {
		return nil, "", err
	}
	base = strings.TrimSuffix(strings.TrimRight(base, "/"), adminPath)
	if admin, err = s.clientAt(base, token); err != nil {
		return nil, "", command.Usagef("the address of the admin listener must look like http://127.0.0.1:8081")
	}
	return admin, base, nil
}

func (s *Shell) notef(format string, args ...any) {
	_, _ = fmt.Fprintln(s.Stderr, term.Line(fmt.Sprintf(format, args...)))
}

// readFile reads a file; "-" is standard input.
func (s *Shell) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(s.Stdin)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return content, nil
}

func (s *Shell) readJSON(name string, into any) error {
	content, err := s.readFile(name)
	if err != nil {
		return err
	}
	if err := strictly(content, into); err != nil {
		return command.Usagef("%s cannot be read as JSON: %w", name, err)
	}
	return nil
}

func strictly(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("the file contains more than one document")
	}
	return nil
}

// readSecret reads a line of standard input. If standard input is a terminal, it prints the question and hides what is typed.
func (s *Shell) readSecret(question string) (string, error) {
	if terminal, ok := s.Stdin.(*os.File); ok && question != "" && term.IsTerminal(terminal) {
		answer, err := term.ReadPassword(terminal, func() { _, _ = fmt.Fprint(s.Stderr, question) })
		_, _ = fmt.Fprintln(s.Stderr)
		if errors.Is(err, io.EOF) {
			return "", command.Code(command.Interrupted)
		}
		return strings.TrimSpace(answer), err
	}
	line, err := bufio.NewReader(s.Stdin).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", command.Usagef("standard input is empty: %w", err)
	}
	return line, nil
}
