// Command bench measures ForgeRun on one machine that also runs Postgres, Redis
// and the load generator, and beside it a naive implementation: one transaction for
// each step of each job. Absolute numbers depend on the machine; the ratios are
// comparable. "bench -help" lists the options.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/bench/experiments"
	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/yardstick"
)

// Exit codes.
const (
	exitOK         = 0
	exitFallsShort = 1 // a figure does
	exitFailed     = 2 // something could not be measured
)

const usageText = `Usage: go run ./internal/bench [options] [quick|standard|full|EXPERIMENT...]

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
	o                       lab.Options
	kind                    kind
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
		exit(exitOK, nil)
	case err != nil:
		exit(exitFailed, err)
	case !c.list:
		exit(c.run(ctx))
	}
	for _, e := range all {
		fmt.Printf("%-14s %-9s %s\n", e.name, e.kind, e.about)
	}
}

// roles are processes that experiments start.
var roles = map[string]func(context.Context, []string) error{
	"naive": yardstick.RunNaive, "nothing": experiments.ServeNothing, "engine": experiments.RunEngine,
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
	flags.StringVar(&c.markdown, "markdown", "", "also write a table for docs/explanation/performance.md to this `file`")
	flags.StringVar(&c.o.Picture, "picture", "", "peers: also draw them, to this SVG `file`")
	flags.StringVar(&c.profile, "profile", "", "profile the whole path at the end and write CPU profiles, statements and shares "+
		"to this `folder`; pg_stat_statements is loaded for the whole run")
	flags.DurationVar(&c.o.Duration, "duration", 0, "length of each phase (default 4s in quick, 8s otherwise)")
	flags.IntVar(&c.o.Rounds, "rounds", 0, "how often comparisons are made; the medians count (default 1 in quick, 3 otherwise)")
	flags.IntVar(&c.o.Clients, "clients", 64, "concurrent HTTP clients")
	flags.IntVar(&c.o.Slots, "slots", 128, "jobs at once in a worker process")
	flags.BoolVar(&c.o.Traced, "traced", false, "observability: also with each request traced")
	flags.BoolVar(&c.o.Watched, "watched", false, "generator: read every event of each job too")
	flags.IntVar(&c.o.Rows, "rows", 0, "seed no more than so many `jobs` in an experiment (default as many as its target says)")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return c, err
	}
	c.kind = standard
	if c.chosen, err = choose(&c.kind, pattern, flags.Args()); err != nil {
		return c, err
	}
	selected := c.kind.String()
	if *only != "" || flags.NArg() > 0 && !slices.Contains(kindNames, flags.Arg(0)) {
		selected = "selected" // which leaves the files of whole runs alone
	}
	duration, rounds := 8*time.Second, 3
	if c.kind == quick {
		duration, rounds = 4*time.Second, 1
	}
	c.o.Duration, c.o.Rounds = cmp.Or(max(0, c.o.Duration), duration), cmp.Or(max(0, c.o.Rounds), rounds)
	c.json = cmp.Or(c.json, "bench-"+selected+".json")
	return c, nil
}

// choose gives the experiments of a kind, or the named ones; with a pattern, of any kind.
func choose(k *kind, pattern *regexp.Regexp, names []string) (chosen []experiment, err error) {
	if len(names) == 1 && slices.Contains(kindNames, names[0]) {
		*k = kind(slices.Index(kindNames, names[0]))
		names = nil
	}
	for _, e := range all {
		switch {
		case len(names) > 0 && !slices.Contains(names, e.name), !pattern.MatchString(e.name):
		case len(names) > 0 || pattern.String() != "" || e.kind <= *k:
			chosen = append(chosen, e)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(e experiment) bool { return e.name == name }) {
			return nil, fmt.Errorf("there is no experiment %q, nor a kind of that name; -list shows what there is (options come first)", name)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no experiment matches %q; -list shows them", pattern)
	}
	return chosen, nil
}

// run runs the experiments, the others also if one fails.
func (c command) run(ctx context.Context) (code int, err error) {
	settings := map[string]string{}
	if c.profile != "" {
		settings["shared_preload_libraries"] = "pg_stat_statements"
		c.chosen = append(c.chosen, experiment{"profile", full, "the whole path again, being profiled", experiments.ProfileTo(c.profile)})
	}
	l, err := lab.New(ctx, c.o, settings)
	if err != nil {
		return exitFailed, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	about, err := l.Description(ctx)
	if err != nil {
		return exitFailed, err
	}
	l.Printf("%s", strings.Join(about, "\n  "))
	list, failed := runAll(ctx, l, c.chosen)
	fmt.Println()
	err = errors.Join(figures.WriteTable(os.Stdout, list), figures.WriteJSON(c.json, list))
	if c.markdown != "" {
		err = errors.Join(err, figures.WriteMarkdown(c.markdown, about, list))
	}
	return exitCode(list, failed), errors.Join(err, failed)
}

func runAll(ctx context.Context, l *lab.Lab, chosen []experiment) (list []figures.Figure, failed error) {
	for i, e := range chosen {
		if ctx.Err() != nil {
			return list, errors.Join(failed, ctx.Err())
		}
		fmt.Printf("\n[%d/%d] %s: %s\n", i+1, len(chosen), e.name, e.about)
		began := time.Now()
		got, err := e.run(ctx, l)
		if err != nil {
			err = fmt.Errorf("%s: %w", e.name, err)
			l.Printf("NOT MEASURED: %v", err)
			failed = errors.Join(failed, err)
		}
		list = append(list, got...)
		l.Printf("(%v)", time.Since(began).Round(time.Second))
	}
	return list, failed
}

func exitCode(list []figures.Figure, failed error) int {
	switch {
	case failed != nil:
		return exitFailed
	case slices.ContainsFunc(list, func(f figures.Figure) bool { return !f.OK }):
		return exitFallsShort
	}
	return exitOK
}
