// Package session is what every command of the command line has: the service that it speaks to, and how it prints.
package session

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

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// Session is one run of the program.
type Session struct {
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Version        string

	flags   access.Flags
	form    string
	verbose bool
}

// ForClients adds the flags of commands that use the public API.
func (s *Session) ForClients(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&s.flags.URL, "url", "", "`address` of the service (FORGERUN_URL)")
	f.StringVar(&s.flags.Key, "key", "", "API `key` (FORGERUN_API_KEY is better: other users see arguments in ps)")
	return s.Plain(c)
}

// ForOperators adds the flags of commands that use the operator API.
func (s *Session) ForOperators(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	f.StringVar(&s.flags.AdminURL, "admin-url", "", "`address` of the admin listener (FORGERUN_ADMIN_URL)")
	f.StringVar(&s.flags.AdminToken, "admin-token", "",
		"operator's `token` (FORGERUN_ADMIN_TOKEN is better: other users see arguments in ps)")
	return s.Plain(c)
}

// Plain adds the flags that all commands have.
func (s *Session) Plain(c *cobra.Command) *cobra.Command {
	f := c.PersistentFlags()
	if f.Lookup("output") != nil {
		return c
	}
	f.StringVar(&s.flags.Context, "context", "", "`name` of the context to use (FORGERUN_CONTEXT)")
	f.StringVarP(&s.form, "output", "o", "table", "`form` of output: table, wide, json, yaml, name or go-template=TEMPLATE")
	f.BoolVar(&s.verbose, "verbose", false, "show the request that an error is about")
	_ = c.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return output.Formats, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	_ = c.RegisterFlagCompletionFunc("context", s.CompleteContext)
	return c
}

// CompleteContext completes the name of a context.
func (s *Session) CompleteContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	contexts, err := access.LoadContexts(s.Getenv)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return contexts.Names(), cobra.ShellCompDirectiveNoFileComp
}

func (s *Session) finder() access.Finder { return access.Finder{Flags: s.flags, Getenv: s.Getenv} }

// Client makes a client of the public API.
func (s *Session) Client() (*client.Client, error) {
	url, key, err := s.finder().Client()
	if err != nil {
		return nil, err
	}
	return s.ClientAt(url, key)
}

// ClientAt makes a client of the public API at an address.
func (s *Session) ClientAt(url, key string) (*client.Client, error) {
	c, err := client.New(client.Config{URL: url, Key: key, UserAgent: s.agent()})
	if err != nil {
		return nil, command.Usagef("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return c, nil
}

// Registrar makes a client of the public API for what needs no key of a client: it sends the operator's token if one is known.
func (s *Session) Registrar() (*client.Client, error) {
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	return c.WithKey(s.finder().AdminToken()), nil
}

// Operator makes a client of the operator API.
func (s *Session) Operator() (*operator.Client, error) {
	url, token, err := s.finder().Operator()
	if err != nil {
		return nil, err
	}
	c, err := operator.New(url, token, s.agent())
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return c, nil
}

func (s *Session) agent() string { return "forgerun-cli/" + s.Version }

// Style is what standard output can show.
func (s *Session) Style() term.Style { return term.Of(s.Stdout, s.Getenv) }

// Printer prints in the form that was asked for.
func (s *Session) Printer() (*output.Printer, error) {
	form, err := output.Parse(s.form)
	if err != nil {
		return nil, command.Usagef("--output: %w", err)
	}
	return &output.Printer{Form: form, Out: s.Stdout, Style: s.Style(), Now: time.Now}, nil
}

// Notef writes a note for people to standard error.
func (s *Session) Notef(format string, args ...any) {
	_, _ = fmt.Fprintln(s.Stderr, term.Line(fmt.Sprintf(format, args...)))
}

// ReadFile reads a file; "-" is standard input.
func (s *Session) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(s.Stdin)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, command.Usagef("%w", err)
	}
	return content, nil
}

// ReadJSON reads a file as JSON that has no members but those of the value.
func (s *Session) ReadJSON(name string, into any) error {
	content, err := s.ReadFile(name)
	if err != nil {
		return err
	}
	if err := Strictly(content, into); err != nil {
		return command.Usagef("%s cannot be read as JSON: %w", name, err)
	}
	return nil
}

// Strictly decodes one JSON document that has no members but those of the value.
func Strictly(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("there is more than one")
	}
	return nil
}

// AskSecret reads a line of standard input. A terminal shows the question, and nothing of the answer.
func (s *Session) AskSecret(question string) (string, error) {
	terminal, ok := s.Stdin.(*os.File)
	if !ok || !term.IsTerminal(terminal) {
		return s.ReadSecret()
	}
	answer, err := term.ReadPassword(terminal, func() { _, _ = fmt.Fprint(s.Stderr, question) })
	_, _ = fmt.Fprintln(s.Stderr)
	if errors.Is(err, io.EOF) {
		return "", command.Code(command.Interrupted)
	}
	return strings.TrimSpace(answer), err
}

// ReadSecret reads a line of standard input.
func (s *Session) ReadSecret() (string, error) {
	line, err := bufio.NewReader(s.Stdin).ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		return "", command.Usagef("standard input has no line: %w", err)
	}
	return line, nil
}

// ErrTimedOut is the cause of a context of Within that has ended.
var ErrTimedOut = errors.New("the time to wait is over")

// Poll asks until what it asks about has ended, with pauses.
func Poll(ctx context.Context, ask func() (ended bool, pause time.Duration, err error)) error {
	for {
		ended, pause, err := ask()
		if err != nil || ended {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Within is the context of a command, bounded by its flag --timeout; 0, or no such flag, is no bound.
func Within(c *cobra.Command) (context.Context, context.CancelFunc) {
	if timeout, _ := c.Flags().GetDuration("timeout"); timeout > 0 {
		return context.WithTimeoutCause(c.Context(), timeout, ErrTimedOut)
	}
	return context.WithCancel(c.Context())
}
