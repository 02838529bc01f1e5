// Command forgerun is the job-execution service: API, worker, webhooks, and
// everything in one process for development. It reads the configuration and joins the
// packages; it holds no rules of its own.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/repo"
)

// version is set when the program is built.
var version = "dev"

const usage = `ForgeRun executes jobs that are submitted over HTTP and never loses one.

Usage:
  forgerun dev            everything in one process, with its own Postgres and Redis
                          (--chaos kill=10s,flush=30s: several, which are disturbed)
  forgerun api            the HTTP API; any number of processes
  forgerun worker         executes jobs; any number of processes
  forgerun webhooks       delivers events to receivers; any number of processes
  forgerun migrate        bring the database schema up to date (-to N: to version N, up or down)
  forgerun rotate-signing-key
                          make the next key that signs deliveries (--leaked: it signs at
                          once, and all others are no longer valid)
  forgerun config [ROLE]  the effective configuration of a role (api), secrets masked
  forgerun doctor [ROLE]  checks configuration, Postgres and Redis of a role (api), and says
                          what to do about each finding (--json: for machines); writes nothing
  forgerun healthcheck    exit 0 if the process at -url is ready (for containers)
  forgerun version

Everything is configured by environment variables: see 'forgerun config'.
The first five minutes:  forgerun dev
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second signal finds its default meaning again and ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Environ(), os.Stdout, os.Stderr))
}

// run is the program as a value: the exit code is 0 for success, 1 for a
// failure while running, 2 for wrong usage or configuration.
func run(ctx context.Context, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "dev", "api", "worker", "webhooks":
		return runRole(ctx, command, args, getenv, environ, stdout, stderr)
	case "migrate":
		return runMigrate(ctx, args, getenv, stdout, stderr)
	case "rotate-signing-key":
		return runRotateSigningKey(ctx, args, getenv, stdout, stderr)
	case "config":
		return runConfig(args, getenv, stdout, stderr)
	case "doctor":
		return runDoctor(ctx, args, getenv, environ, stdout, stderr)
	case "healthcheck":
		return runHealthcheck(ctx, args, stdout, stderr)
	case "version":
		return runVersion(args, stdout, stderr)
	case "help", "-h", "--help", "-help":
		_, _ = fmt.Fprint(stdout, usage)
		return 0
	}
	_, _ = fmt.Fprint(stderr, usage)
	return 2
}

func runRole(ctx context.Context, role string, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	if len(args) == 1 && isHelp(args[0]) && role != "dev" {
		_, _ = fmt.Fprint(stdout, usage)
		return 0
	}
	var disturbed chaos
	if role == "dev" {
		var code int
		var done bool
		if disturbed, code, done = chaosFlags(args, stdout, stderr); done {
			return code
		}
	} else if len(args) > 0 {
		_, _ = fmt.Fprintf(stderr, "forgerun %s takes no arguments, but got %q; it is configured by the environment.\n", role,
			strings.Join(args, " "))
		return 2
	}
	cfg, err := LoadConfig(role, getenv)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun:", err)
		return 2
	}
	// Notify, so that a write to a pipe whose reader died is an error and not the end. Children do not
	// inherit it, which they would if it were ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	paceGarbage(getenv)
	start := map[string]func(context.Context, Config, []string, io.Writer, io.Writer) error{
		"dev": runDev, "api": runAPI, "worker": runWorker, "webhooks": runWebhooks,
	}[role]
	if disturbed.asked != "" {
		start = func(ctx context.Context, cfg Config, _ []string, stdout, stderr io.Writer) error {
			return disturbed.run(ctx, cfg, environ, stdout, stderr)
		}
	}
	if err := start(ctx, cfg, unknownVariables(environ), stdout, stderr); err != nil {
		lastWords(stderr, "forgerun:", err)
		return 1
	}
	return 0
}

// lastWords says why a role ends, and waits for a second at most for its reader:
// the process is to end.
func lastWords(stderr io.Writer, words ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = fmt.Fprintln(stderr, words...)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

func isHelp(arg string) bool {
	return arg == "-h" || arg == "--help" || arg == "-help" || arg == "help"
}

// parseFlags reads the flags of a command that takes nothing else, unless it is
// one of the words. If it is not to go on, done is true: it asked for help, or
// is wrong.
func parseFlags(flags *flag.FlagSet, args []string, stdout, stderr io.Writer, words ...string) (code int, done bool) {
	var said bytes.Buffer
	flags.SetOutput(&said)
	if len(args) == 1 && isHelp(args[0]) {
		args = []string{"-help"}
	}
	err := flags.Parse(args)
	rest := flags.Args()
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = said.WriteTo(stdout)
		return 0, true
	case err == nil && len(rest) > 0 && !(len(rest) == 1 && slices.Contains(words, rest[0])):
		_, _ = fmt.Fprintf(&said, "forgerun %s does not know %q.\n", flags.Name(), strings.Join(rest, " "))
		flags.Usage()
	case err == nil:
		return 0, false
	}
	_, _ = said.WriteTo(stderr)
	return 2, true
}

func runVersion(args []string, stdout, stderr io.Writer) int {
	if code, done := parseFlags(flag.NewFlagSet("version", flag.ContinueOnError), args, stdout, stderr); done {
		return code
	}
	_, _ = fmt.Fprintln(stdout, version)
	return 0
}

func runMigrate(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	to := flags.Int64("to", -1, "schema `version` to go to, up or down; -1 is the newest")
	if code, done := parseFlags(flags, args, stdout, stderr, "up"); done {
		return code
	}
	if newest := repo.NewestSchema(); *to < -1 || *to > newest {
		_, _ = fmt.Fprintf(stderr, "forgerun migrate: there is no version %d of the schema: this program knows 0 (none) to %d.\n", *to, newest)
		return 2
	}
	cfg, err := LoadConfig("migrate", getenv)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun:", err)
		return 2
	}
	if err := repo.Migrate(ctx, cfg.DatabaseURL, *to); err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun:", err)
		return 1
	}
	now, err := repo.Inspect(ctx, cfg.DatabaseURL)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun: the schema was brought to that version, but then Postgres", err)
		return 1
	}
	_, _ = fmt.Fprintf(stdout, "The schema is at version %d.\n", now.SchemaVersion)
	return 0
}

// configRoles are the roles whose configuration can be shown: those that read
// any.
var configRoles = []string{"api", "worker", "webhooks", "dev", "migrate", "rotate-signing-key"}

func runConfig(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	role := "api"
	if len(args) > 0 {
		role = args[0]
	}
	switch {
	case slices.ContainsFunc(args, isHelp):
		_, _ = fmt.Fprint(stdout, usage)
		return 0
	case len(args) > 1 || !slices.Contains(configRoles, role):
		_, _ = fmt.Fprintf(stderr, "forgerun config: use 'config [ROLE]', with role %s; api is the default.\n", strings.Join(configRoles, ", "))
		return 2
	}
	var cfg Config
	cfg.Print(stdout, role, getenv)
	if _, err := LoadConfig(role, getenv); err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun:", err)
		return 2
	}
	return 0
}
