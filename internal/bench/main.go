// Command bench measures ForgeRun on one machine that also runs Postgres, Redis and the load generator. Absolute numbers depend on
// the machine and its current state; only ratios of alternating rounds are comparable. "bench -help" lists the options.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const usageText = `Usage: go run ./internal/bench [options] [EXPERIMENT...]

Starts its own Postgres and Redis (durable: fsync, synchronous_commit and AOF on), measures ForgeRun on them
and prints the medians. The sides of a comparison are measured in turns; a ratio is the median of the rounds'
ratios. Experiments, by default all:

`

type experiment struct {
	name, about string
	run         func(*lab)
}

var all = []experiment{
	{"throughput", "submission with the workers stopped, and the whole path", throughput},
	{"idle", "single jobs when there is nothing to do, and the CPU of waiting for them", idle},
	{"deliveries", "webhook deliveries to one endpoint and to 50, also while 20 of them hang", deliveries},
	{"floor", "the same jobs through River and asynq alone, as bare SQL, and to an empty endpoint", floor},
	{"table", "the service with many finished jobs in its tables", largeTable},
}

type options struct {
	duration time.Duration // of each phase
	rounds   int           // of each comparison
	rows     int           // finished jobs in the large table
	against  string        // another build of the service, measured in alternating rounds; "": none
}

func (o options) warmup() time.Duration { return max(time.Second, o.duration/4) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, chosen, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o, chosen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, chosen []experiment, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usageText)
		for _, e := range all {
			_, _ = fmt.Fprintf(flags.Output(), "  %-12s%s\n", e.name, e.about)
		}
		_, _ = fmt.Fprint(flags.Output(), "\nOptions:\n")
		flags.PrintDefaults()
	}
	flags.StringVar(&o.against, "against", "", "measure this `program` too, in turns: forgerun as another commit builds it")
	flags.DurationVar(&o.duration, "duration", 8*time.Second, "length of each phase")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each side is measured")
	flags.IntVar(&o.rows, "rows", 1_000_000, "finished `jobs` in the large table")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	if o.duration <= 0 || o.rounds <= 0 || o.rows <= 0 {
		return o, nil, errors.New("duration and numbers must be above zero")
	}
	if o.against != "" {
		if _, err := os.Stat(o.against); err != nil {
			return o, nil, fmt.Errorf("-against: %w", err)
		}
	}
	for _, e := range all {
		if flags.NArg() == 0 || slices.Contains(flags.Args(), e.name) {
			chosen = append(chosen, e)
		}
	}
	if len(chosen) < flags.NArg() {
		return o, nil, fmt.Errorf("%q: there is no such experiment; -help lists them (options come first)", flags.Args())
	}
	return o, chosen, nil
}

func run(ctx context.Context, o options, chosen []experiment) error {
	l := &lab{options: o, ctx: ctx}
	return l.attempt(func() {
		l.open()
		commit, _ := exec.CommandContext(ctx, "git", "--no-optional-locks", "describe", "--always", "--dirty=-changed").Output()
		model := runtime.GOARCH
		cpus, _ := os.ReadFile("/proc/cpuinfo") // exists only on Linux
		if match := regexp.MustCompile(`(?m)^model name\s*: (.+)$`).FindSubmatch(cpus); match != nil {
			model = string(match[1])
		}
		fmt.Printf("%s; commit %s; %d cores, %s; %s\n", time.Now().Format("2006-01-02 15:04 MST"),
			strings.TrimSpace(string(commit)), runtime.NumCPU(), model, runtime.Version())
		failed := l.runAll(chosen)
		fmt.Println()
		check(errors.Join(failed, writeTable(os.Stdout, l.lines)))
	})
}

func (l *lab) runAll(chosen []experiment) (failed error) {
	for i, e := range chosen {
		if l.ctx.Err() != nil {
			return errors.Join(failed, l.ctx.Err())
		}
		fmt.Printf("\n[%d/%d] %s: %s\n", i+1, len(chosen), e.name, e.about)
		began := time.Now()
		if err := l.attempt(func() { e.run(l) }); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
			fmt.Println("  NOT MEASURED:", err)
		}
		fmt.Printf("  (%v)\n", time.Since(began).Round(time.Second))
	}
	return failed
}
