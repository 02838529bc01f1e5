// Command bench measures ForgeRun on one machine that also runs Postgres, Redis
// and the load generator, and beside it the same thing done naively: one
// transaction for each step of each job. Absolute numbers say more about the
// machine than about the program; the ratios, taken in turns in one run, say what
// the design is worth. "bench -help" tells the rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK         = 0
	exitFallsShort = 1 // a figure does
	exitFailed     = 2 // something could not be measured
)

const usageText = `Usage: go run ./bench [options] [quick|standard|full|EXPERIMENT...]

Starts a Postgres and a Redis of its own (durable: fsync, synchronous_commit and
AOF on), measures ForgeRun on them, and prints each figure with its target.

  quick      submission, the whole path, idle: about a minute
  standard   all but large tables and long queues: about ten minutes (default)
  full       everything; hundreds of thousands to millions of rows are seeded

or the names of experiments, which -list shows. The figures are also written as
JSON, a list of {figure, target, measured, unit, ok, at_most, note}.

Exit code: 0 all figures reach their targets, 1 one falls short, 2 one could not
be measured ("go run" prints it and exits with 1 itself).

Options:
`

// command is what the command line asks for.
type command struct {
	o                       options
	chosen                  []experiment
	json, markdown, profile string
	list                    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 {
		if role, ok := roles[os.Args[1]]; ok {
			exit(exitOK, role(ctx, os.Args[2:]))
		}
	}
	c, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(exitOK)
	case err != nil:
		exit(exitOK, err)
	case c.list:
		list()
		os.Exit(exitOK)
	}
	exit(c.run(ctx))
}

// roles are for the program's own use: what it measures against, and with.
var roles = map[string]func(context.Context, []string) error{
	"naive": runNaive, "nothing": func(context.Context, []string) error { return serveNothing() }, "engine": runEngine,
}

func exit(code int, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		code = exitFailed
	}
	os.Exit(code)
}

func parse(args []string) (c command, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usageText)
		flags.PrintDefaults()
	}
	only := flags.String("only", "", "run only experiments whose names match this `regexp`, of any kind")
	flags.BoolVar(&c.list, "list", false, "list the experiments and end")
	flags.StringVar(&c.json, "json", "", "write the figures to this `file` (default bench-KIND.json, or bench-selected.json)")
	flags.StringVar(&c.markdown, "markdown", "", "also write a table for docs/performance.md to this `file`")
	flags.StringVar(&c.profile, "profile", "", "profile the whole path at the end and write CPU profiles, statements and shares to this `folder`; pg_stat_statements is loaded for the whole run")
	flags.DurationVar(&c.o.duration, "duration", 0, "length of each phase (default 4s in quick, 8s otherwise)")
	flags.IntVar(&c.o.rounds, "rounds", 0, "how often comparisons are made; the medians count (default 1 in quick, 3 otherwise)")
	flags.IntVar(&c.o.clients, "clients", 64, "concurrent HTTP clients")
	flags.IntVar(&c.o.slots, "slots", 128, "jobs at once in a worker process")
	flags.BoolVar(&c.o.traced, "traced", false, "observability: also with each request traced")
	flags.BoolVar(&c.o.watched, "watched", false, "generator: read every event of each job too")
	seedFlags(flags)
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return c, err
	}
	c.o.kind = standard
	if c.chosen, err = choose(&c.o.kind, pattern, flags.Args()); err != nil {
		return c, err
	}
	selected := c.o.kind.String()
	if *only != "" || flags.NArg() > 0 && !slices.Contains(kindNames, flags.Arg(0)) {
		selected = "selected" // which leaves the files of whole runs alone
	}
	c.fill("bench-" + selected + ".json")
	return c, nil
}

// fill sets what was left open.
func (c *command) fill(json string) {
	duration, rounds := 8*time.Second, 3
	if c.o.kind == quick {
		duration, rounds = 4*time.Second, 1
	}
	if c.o.duration <= 0 {
		c.o.duration = duration
	}
	if c.o.rounds <= 0 {
		c.o.rounds = rounds
	}
	if c.json == "" {
		c.json = json
	}
}

// choose gives the experiments of a kind, or the named ones; a pattern chooses
// among those of any kind.
func choose(k *kind, pattern *regexp.Regexp, names []string) (chosen []experiment, err error) {
	if len(names) == 1 && slices.Contains(kindNames, names[0]) {
		*k = kind(slices.Index(kindNames, names[0]))
		names = nil
	}
	for _, e := range experiments {
		switch {
		case len(names) > 0 && !slices.Contains(names, e.name), !pattern.MatchString(e.name):
		case len(names) > 0 || pattern.String() != "" || e.kind <= *k:
			chosen = append(chosen, e)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(experiments, func(e experiment) bool { return e.name == name }) {
			return nil, fmt.Errorf("there is no experiment %q, nor a kind of that name; -list shows what there is (options come first)", name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no experiment matches %q; -list shows them", pattern)
	}
	return chosen, nil
}

func list() {
	for _, e := range experiments {
		fmt.Printf("%-14s %-9s %s\n", e.name, e.kind, e.about)
	}
}

// run makes the experiments. One that fails does not keep the others from being made.
func (c command) run(ctx context.Context) (code int, err error) {
	settings := map[string]string{}
	if c.profile != "" {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		c.chosen = append(c.chosen, experiment{name: "profile", about: "the whole path again, being profiled", run: profileTo(c.profile)})
	}
	s, err := newStack(ctx, settings)
	if err != nil {
		return exitFailed, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	about, err := s.about(ctx)
	if err != nil {
		return exitFailed, err
	}
	for _, line := range about {
		fmt.Println("  " + line)
	}
	l := &lab{stack: s, o: c.o}
	figures, failed := l.runAll(ctx, c.chosen)
	fmt.Println()
	err = errors.Join(writeTable(os.Stdout, figures), writeJSON(c.json, figures))
	if c.markdown != "" {
		err = errors.Join(err, writeMarkdown(c.markdown, about, figures))
	}
	return exitCode(figures, failed), errors.Join(err, failed)
}

func (l *lab) runAll(ctx context.Context, chosen []experiment) (figures []figure, failed error) {
	for i, e := range chosen {
		if ctx.Err() != nil {
			return figures, errors.Join(failed, ctx.Err())
		}
		fmt.Printf("\n[%d/%d] %s: %s\n", i+1, len(chosen), e.name, e.about)
		began := time.Now()
		got, err := e.run(ctx, l)
		if err != nil {
			err = fmt.Errorf("%s: %w", e.name, err)
			l.say("NOT MEASURED: %v", err)
			failed = errors.Join(failed, err)
		}
		figures = append(figures, got...)
		l.say("(%v)", time.Since(began).Round(time.Second))
	}
	return figures, failed
}

func exitCode(figures []figure, failed error) int {
	switch {
	case failed != nil:
		return exitFailed
	case slices.ContainsFunc(figures, func(f figure) bool { return !f.OK }):
		return exitFallsShort
	}
	return exitOK
}
