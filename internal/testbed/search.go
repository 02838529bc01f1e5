package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/search"
)

const searchHelp = `Searches for the shortest sequence of faults that breaks a client of ForgeRun, or
with --target of any HTTP API.

First runs the command without faults: it must succeed. Then runs it many times, each time
with other faults: each fault at each operation, pairs of faults, and longer sequences that
reach new combinations of fault, operation and job state. A sequence breaks the client if

  the client breaks a rule of the verdict of level "must" (with --strict, any rule),
  the command fails or never ends, although all of the faults are temporary,
  it succeeds without learning how a job ended, although it learns this without faults,
  or it succeeds with more or fewer jobs than without faults.

Each sequence that breaks the client is made as short and simple as possible, run again
--min-support times, described in words, and written to a file that "forgerun verdict
--faults" replays. Keep these files, and run them with --regressions in your pipeline.

Several runs of the command take place at once (--workers), so it must not need a port or a
file that only one run can use. The same seed tries the same sequences.

Exit codes:
  0  nothing was found
  1  a sequence that breaks the client was found
  2  the search was not possible: the command fails or breaks a rule without faults, or it
     sends no request; or a file could not be written
  130  interrupted (Ctrl-C): the findings until then are printed`

type searchRun struct {
	verdictRun
	search.Config
	budget           time.Duration
	tries            int
	dir, regressions string

	perWorker []verdictRun
}

func searchCommand(p command.Program) *cobra.Command {
	r := &searchRun{verdictRun: verdictRun{Program: p, proxied: proxied{listen: anyPort}, seeds: 1}}
	c := &cobra.Command{
		Use: "search [flags] -- COMMAND [ARGUMENT...]", Short: "Find the shortest sequence of faults that breaks your client",
		Long: searchHelp, DisableFlagsInUseLine: true,
		Example: `  forgerun search -- python3 client.py
  forgerun search --budget 2m --workers 8 --first -- go run ./client
  forgerun search --target http://127.0.0.1:3000 --url-env API_URL -- npm test
  forgerun search --regressions forgerun-search -- python3 client.py`,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if r.command, err = commandOf(c, args); err != nil {
				return err
			}
			if err := cmp.Or(r.verdictRun.check(c.Flags()), r.check()); err != nil {
				return command.Usagef("%w (%s --help)", err, c.CommandPath())
			}
			return command.Code(r.play(c.Context()))
		},
	}
	groupFlags(c, r.serviceFlags(), r.targetFlags(), r.searchFlags(), r.outputFlags())
	complete(c, verdict.IDs(), "rules", "skip")
	return c
}

func (r *searchRun) searchFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("The search", pflag.ContinueOnError)
	f.DurationVar(&r.budget, "budget", 5*time.Minute, "`duration` after which the search ends")
	f.IntVar(&r.Workers, "workers", 8, "`number` of runs at once")
	f.IntVar(&r.Support, "min-support", 3, "`number` of runs in which a sequence must break the client, or else it is listed as flaky")
	f.IntVar(&r.tries, "tries", 3, "`number` of times that a client must try a request before it may give up")
	f.Int64Var(&r.Seed, "seed", 1, "`number` that seeds the order of the sequences")
	f.BoolVar(&r.First, "first", false, "stop at the first finding")
	f.StringSliceVar(&r.rules, "rules", nil, "`ids` of the rules to judge, separated by commas; default: all")
	f.StringSliceVar(&r.skip, "skip", nil, "`ids` of rules not to judge")
	f.BoolVar(&r.policy.Strict, "strict", false, "also count broken rules of level \"should\"")
	return f
}

func (r *searchRun) outputFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("Output", pflag.ContinueOnError)
	command.JSON(f, &r.json)
	f.StringVar(&r.dir, "out", "forgerun-search", "`folder` for the results: a file of faults for each finding, and a page (index.html)")
	f.StringVar(&r.regressions, "regressions", "", "`folder` with such files of faults: run the command with each file, and do not search")
	return f
}

func (r *searchRun) check() error {
	switch {
	case r.budget <= 0:
		return errors.New("--budget must be above 0")
	case r.Workers < 1 || r.Workers > search.MaxWorkers:
		return fmt.Errorf("--workers must be 1 to %d", search.MaxWorkers)
	case r.Support < 1:
		return errors.New("--min-support must be at least 1")
	case r.tries < 2:
		return errors.New("--tries must be at least 2")
	case r.webhook != "" && r.Workers > 1:
		return errors.New("--webhook names a single receiver, so it needs --workers 1")
	}
	r.InRow = r.tries - 1
	return nil
}

// play runs the search or, with --regressions, replays earlier findings.
func (r *searchRun) play(ctx context.Context) int {
	return r.within(ctx, func() int {
		stopWorkers, err := r.startWorkers()
		if err != nil {
			return r.Unusable(err)
		}
		defer stopWorkers()
		r.Run = r.try
		if r.regressions != "" {
			return r.replay(ctx)
		}
		return r.find(ctx)
	})
}

// replayed returns the command line that replays a finding and fails while the client breaks its rules.
func (r *searchRun) replayed(f *search.Finding) string {
	flags := []string{"--faults", filepath.Join(r.dir, f.Name+".yaml")}
	for _, b := range f.Breaks {
		if b.Level == verdict.Should {
			flags = append(flags, "--require", b.Rule)
		}
	}
	return r.verdictCommand(flags...)
}

// verdictCommand returns the command line of a verdict for the same client and API.
func (r *searchRun) verdictCommand(flags ...string) string {
	words := append([]string{"forgerun", "verdict"}, flags...)
	for _, target := range r.targets {
		words = append(words, "--target", target)
	}
	for _, flag := range [][2]string{
		{"--api", r.api}, {"--openapi", r.openAPI}, {"--url-env", strings.Join(r.urlNames, ",")},
	} {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	if r.policy.Strict {
		words = append(words, "--strict")
	}
	if r.forward {
		words = append(words, "--forward")
	}
	words = append(append(words, "--"), r.command...)
	for i, word := range words {
		if strings.ContainsAny(word, " \t\n'\"$&|;<>()*?[]#~`\\!{}") || word == "" {
			words[i] = quoteForShell(word)
		}
	}
	return strings.Join(words, " ")
}

func quoteForShell(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
