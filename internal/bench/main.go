// Command bench measures ForgeRun on one machine that also runs Postgres, Redis
// and the load generator. Absolute numbers depend on the machine and the minute; ratios
// of what was measured in turns are comparable. "bench -help" lists the options.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/bench/experiments"
	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

const usageText = `Usage: go run ./internal/bench [options] [EXPERIMENT...]

Starts a Postgres and a Redis of its own (durable: fsync, synchronous_commit and
AOF on), measures ForgeRun on them and prints the medians. What is compared is
measured in turns; a ratio is the median of the rounds' ratios. Experiments, by
default all:

`

// experiment yields several figures.
type experiment struct {
	name, about string
	run         func(context.Context, *lab.Lab) ([]figures.Figure, error)
}

// all experiments, in the order in which they run.
var all = []experiment{
	{"throughput", "submission with the workers stopped, and the whole path", experiments.Throughput},
	{"idle", "single jobs when there is nothing to do, and what waiting for them costs", experiments.Idle},
	{"deliveries", "webhook deliveries to one endpoint and to 50, also while 20 of them hang", experiments.Deliveries},
	{"peers", "the same jobs, a backlog of them too, through River and asynq alone", experiments.Peers},
	{"table", "the service with many finished jobs in its tables", experiments.LargeTable},
}

// command is what the command line asks for.
type command struct {
	options lab.Options
	picture string
	chosen  []experiment
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = c.run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (c command, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usageText)
		for _, e := range all {
			_, _ = fmt.Fprintf(flags.Output(), "  %-12s%s\n", e.name, e.about)
		}
		_, _ = fmt.Fprint(flags.Output(), "\nOptions:\n")
		flags.PrintDefaults()
	}
	o := &c.options
	flags.StringVar(&o.Against, "against", "", "measure this `program` too, in turns: forgerun as another commit builds it")
	flags.StringVar(&c.picture, "picture", "", "also draw what is compared, to this SVG `file`")
	flags.DurationVar(&o.Duration, "duration", 8*time.Second, "length of each phase")
	flags.IntVar(&o.Rounds, "rounds", 3, "how often each side is measured")
	flags.IntVar(&o.Rows, "rows", 1_000_000, "finished `jobs` in the large table")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if o.Duration <= 0 || o.Rounds <= 0 || o.Rows <= 0 {
		return c, errors.New("duration and numbers must be above zero")
	}
	if o.Against != "" {
		if _, err := os.Stat(o.Against); err != nil {
			return c, fmt.Errorf("-against: %w", err)
		}
	}
	c.chosen, err = choose(flags.Args())
	return c, err
}

// choose gives the named experiments, or all if there is no name.
func choose(names []string) (chosen []experiment, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(e experiment) bool { return e.name == name }) {
			return nil, fmt.Errorf("there is no experiment %q; -help lists them (options come first)", name)
		}
	}
	for _, e := range all {
		if len(names) == 0 || slices.Contains(names, e.name) {
			chosen = append(chosen, e)
		}
	}
	return chosen, nil
}

func (c command) run(ctx context.Context) (err error) {
	l, err := lab.New(ctx, c.options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	about, err := l.Description(ctx)
	if err != nil {
		return err
	}
	fmt.Println(about)
	list, failed := runAll(ctx, l, c.chosen)
	fmt.Println()
	err = errors.Join(failed, figures.WriteTable(os.Stdout, list))
	if c.picture != "" {
		err = errors.Join(err, os.WriteFile(c.picture, []byte(figures.Picture(list)), 0o644))
	}
	return err
}

// runAll runs the experiments, the others also if one fails.
func runAll(ctx context.Context, l *lab.Lab, chosen []experiment) (list []figures.Figure, failed error) {
	for i, e := range chosen {
		if ctx.Err() != nil {
			return list, errors.Join(failed, ctx.Err())
		}
		fmt.Printf("\n[%d/%d] %s: %s\n", i+1, len(chosen), e.name, e.about)
		began := time.Now()
		got, err := e.run(ctx, l)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
			fmt.Println("  NOT MEASURED:", err)
		}
		list = append(list, got...)
		fmt.Printf("  (%v)\n", time.Since(began).Round(time.Second))
	}
	return list, failed
}
