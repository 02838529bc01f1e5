// Command bench measures ForgeRun on one machine that also runs Postgres,
// Redis and the load generator, and beside it the same thing done naively:
// one transaction for each step of each job. Absolute numbers say more about
// the machine than about the program; the ratios, taken in one run, say what
// the design is worth. "bench deliveries" measures webhooks,
// "bench observability" what it costs to be seen, and "bench generator" the
// simulator, which must not be what limits a run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	duration time.Duration // of each phase
	rounds   int
	clients  int
	slots    int // jobs at once in the worker
	json     string
	env      []string // of the programs, on top
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "naive" {
		exit(runNaive(ctx, os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == "deliveries" {
		ok, err := runDeliveries(ctx, os.Args[2:])
		exit(fallsShort(ok, err))
	}
	if len(os.Args) > 1 && os.Args[1] == "observability" {
		ok, err := runObservability(ctx, os.Args[2:])
		exit(fallsShort(ok, err))
	}
	if len(os.Args) > 1 && os.Args[1] == "generator" {
		ok, err := runGenerator(ctx, os.Args[2:])
		exit(fallsShort(ok, err))
	}
	var o options
	flag.DurationVar(&o.duration, "duration", 8*time.Second, "length of each phase")
	flag.IntVar(&o.rounds, "rounds", 3, "how often everything is measured; medians are shown")
	flag.IntVar(&o.clients, "clients", 64, "concurrent HTTP clients")
	flag.IntVar(&o.slots, "slots", 128, "jobs at once in the worker process")
	flag.StringVar(&o.json, "json", "", "also write the figures to this `file`")
	flag.Parse()
	ok, err := run(ctx, o)
	exit(fallsShort(ok, err))
}

func fallsShort(ok bool, err error) error {
	if err == nil && !ok {
		return fmt.Errorf("a figure falls short of its target")
	}
	return err
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run measures both systems in turn, so that a machine whose speed drifts is
// unfair to neither.
func run(ctx context.Context, o options) (ok bool, err error) {
	s, err := newStack(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		if closing := s.close(); err == nil {
			err = closing
		}
	}()
	var real, naive []sample
	for round := range o.rounds {
		for _, system := range []struct {
			name    string
			samples *[]sample
			start   func(context.Context, *database, options) (system, error)
		}{{"forgerun", &real, s.startForgeRun}, {"naive", &naive, s.startNaive}} {
			fmt.Printf("round %d of %d: %s\n", round+1, o.rounds, system.name)
			measured, err := s.measure(ctx, o, system.start)
			if err != nil {
				return false, fmt.Errorf("%s: %w", system.name, err)
			}
			fmt.Printf("  %s\n", measured)
			*system.samples = append(*system.samples, measured)
		}
	}
	return report(o, median(real), median(naive))
}
