package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/version"
)

const runHelp = `Plays a scenario and judges how the service handled it. SCENARIO is a file, or
the name of a ready-made one ("forgerun simulate scenarios" lists them).

Without --url it starts its own ForgeRun, with its own Postgres and Redis,
and stops it at the end. It can then also scale the workers while traffic runs
(--workers) and inject faults (--chaos). With --url it plays against a running
service. With --database-url, the judge also reads this service's rows in Postgres. If
--redis-url is set too, --workers can start worker processes for the service. With
an --admin-url for each process, the judge also compares the metrics with these rows.
The service must be able to call the webhook receiver on this machine. If the receiver is
on loopback, start the service with FORGERUN_WEBHOOK_ALLOW_PRIVATE=true; otherwise use
--receiver-addr and --receiver-url. At its end, the run cancels unfinished jobs.

The folder --out contains the results of a run: report.html, report.json,
junit.xml, and, if something was wrong, the history and the logs.

Kinds of faults for --chaos, where each needs the mean time between two such faults:
%s`

type runFlags struct {
	trial.Options
	workers, chaos string
	seed           uint64
	duration       time.Duration
	drain          time.Duration
	jobs           int64
}

const (
	defaultLease  = 3 * time.Second
	defaultSample = 2000
	anyPort       = "127.0.0.1:0"
)

func runCommand(p command.Program) *cobra.Command {
	f := &runFlags{}
	c := &cobra.Command{
		Use: "run SCENARIO", Short: "Play a scenario, judge the service, and write a report", Long: fmt.Sprintf(runHelp, stack.FaultList()),
		ValidArgs: scenario.Names(), Args: command.Between(0, 1),
		Example: `  forgerun simulate run steady
  forgerun simulate run soak --duration 2m --workers 1..4 --chaos kill=10s,stop=20s,cut=1s
  forgerun simulate run moved-clock --chaos clock=1s
  forgerun simulate run tour --url http://127.0.0.1:8080 --key frk_... --time-scale-hint 0.02
  forgerun simulate run ./mine.yaml --url http://127.0.0.1:8080 --key frk_... --database-url postgres://...`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return command.Usagef("name a scenario: a file, or one of %s (%s --help)", strings.Join(scenario.Names(), ", "), c.CommandPath())
			}
			if err := f.load(args[0]); err != nil {
				return command.Usagef("%w", err)
			}
			return command.Code(f.play(c.Context(), p, commandLine(c.CommandPath(), p.Arguments)))
		},
	}
	f.declare(c.Flags())
	return c
}

func (f *runFlags) play(ctx context.Context, p command.Program, typed string) int {
	f.Command, f.Program, f.Stdout, f.Stderr = typed, version.Get().Line("forgerun"), p.Stdout, p.Stderr
	outcome, err := trial.New(f.Options).Run(ctx)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(p.Stderr, "forgerun: interrupted, nothing was judged")
		return command.Interrupted
	case err != nil:
		return p.Unusable(err)
	case outcome == report.Passed:
		return command.Succeeded
	case outcome == report.Inconclusive:
		return command.WrongUsage
	}
	return command.Failed
}

func (f *runFlags) declare(fs *pflag.FlagSet) {
	fs.StringVar(&f.URL, "url", "", "base `URL` of a running service; default: start one")
	fs.StringVar(&f.Key, "key", "", "API `key` for the service at --url; default: register clients")
	fs.StringVar(&f.ReceiverAddr, "receiver-addr", anyPort, "`address` on which to receive webhooks")
	fs.StringVar(&f.ReceiverURL, "receiver-url", "", "base `URL` at which the service reaches the receiver (default: its --receiver-addr)")
	fs.Func("time-scale-hint", "FORGERUN_TIME_SCALE of the service at --url, a `number`; needed to check durations", func(text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 1000) {
			return errors.New("must be a number from 0 to 1000")
		}
		f.TimeScale = &n
		return nil
	})
	fs.StringVar(&f.DatabaseURL, "database-url", "", "Postgres `URL` of the service at --url, for the judge")
	fs.StringVar(&f.RedisURL, "redis-url", "", "Redis `URL` of the service at --url, for the judge and for --workers")
	fs.StringArrayVar(&f.AdminURLs, "admin-url", nil,
		"`URL` of an admin listener of the service at --url, to check its metrics; repeat for each process")
	fs.StringVar(&f.Binary, "forgerun", "", "`path` of the forgerun binary (default: this one)")
	fs.StringVar(&f.Out, "out", "", "`folder` for the report (default: .forgerun/runs/SCENARIO-TIME)")
	fs.StringVar(&f.workers, "workers", "", "worker `processes`: 4, 1..8 (a ramp) or 1,4,2 (equal steps)")
	fs.StringVar(&f.chaos, "chaos", "", "`faults` such as kill=30s,stop=60s (see above), or none")
	fs.Uint64Var(&f.seed, "seed", 0, "`number` that seeds every request and fault (default: the scenario's)")
	fs.DurationVar(&f.duration, "duration", 0, "how long to send submissions; overrides the scenario's `time`")
	fs.DurationVar(&f.drain, "drain", 0, "how long to wait after the last submission for jobs to end, and then for deliveries; overrides the "+
		"scenario's `time`")
	fs.Int64Var(&f.jobs, "jobs", 0, "how many requests to send; overrides the scenario's `number`")
	fs.DurationVar(&f.Lease, "lease", defaultLease, "lease `time` of the started workers")
	fs.IntVar(&f.Sample, "sample", defaultSample, "`number` of jobs whose reports and deliveries are also read over HTTP and checked")
	fs.BoolVar(&f.Keep, "keep", false, "also keep the history and the logs of a run without violations")
}

func (f *runFlags) load(name string) error {
	s, err := scenario.Load(name)
	if err != nil {
		return err
	}
	f.Scenario, f.StartWorkers = s, f.workers != ""
	return f.applyFlags(s)
}

func (f *runFlags) applyFlags(s *scenario.Scenario) error {
	if f.seed != 0 {
		s.Seed = f.seed
	}
	if f.duration < 0 || f.drain < 0 || f.jobs < 0 || f.Sample < 0 || f.Lease < time.Second {
		return errors.New("--duration, --drain, --jobs and --sample must not be negative, and --lease must be at least 1s")
	}
	s.Drain = cmp.Or(f.drain, s.Drain)
	if f.duration > 0 {
		// Workers lists the number of workers in each step of the run, such as "1,16,1". A shorter run omits the last steps. The other steps keep
		// their length, because workers finish too few jobs in a short step.
		if steps := strings.Split(s.Service.Workers, ","); f.duration < s.Duration {
			fit := int(math.Round(float64(len(steps)) * float64(f.duration) / float64(s.Duration)))
			s.Service.Workers = strings.Join(steps[:max(fit, 1)], ",")
		}
		s.Duration = f.duration
	}
	if f.jobs > 0 {
		s.Jobs = f.jobs
		if f.duration == 0 {
			s.Duration = 0 // no time limit: the run ends with the last job
		}
	}
	if f.chaos != "" {
		s.Chaos = f.chaos
	}
	if s.Chaos == "none" {
		s.Chaos = ""
	}
	own := f.URL == ""
	if !own && f.chaos == "" && f.workers == "" {
		s.Chaos = "" // faults need processes that the simulator started
	}
	for _, admin := range f.AdminURLs {
		if u, err := url.Parse(admin); err != nil || u.Host == "" || u.RawQuery != "" {
			return fmt.Errorf("--admin-url %q is not an address such as http://127.0.0.1:8081", admin)
		}
	}
	switch {
	case f.AdminURLs != nil && (own || f.DatabaseURL == ""):
		return errors.New("--admin-url compares the metrics of the service at --url with its database rows: pass --url and --database-url too")
	case own && (f.DatabaseURL != "" || f.RedisURL != "" || f.Key != "" || f.TimeScale != nil):
		return errors.New("--key, --database-url, --redis-url and --time-scale-hint need --url")
	case !own && f.workers != "" && (f.DatabaseURL == "" || f.RedisURL == ""):
		return errors.New("--workers for a service at --url needs its --database-url and --redis-url")
	case !own && s.Chaos != "" && f.workers == "":
		return errors.New("--chaos affects only processes that the simulator started: remove --url, or start workers with --workers")
	case f.workers != "":
		s.Service.Workers = f.workers
	}
	if f.Key != "" {
		s.Tenants = 1
	}
	return nil
}

// secrets matches flags with secret values, in arguments separated by NUL bytes.
var secrets = regexp.MustCompile(`(\x00--?(?:key|database-url|redis-url)[=\x00])[^\x00]*`)

// commandLine returns the command for the report, without secrets. `path` is the program's name and the subcommands. `arguments` contains
// the subcommands too.
func commandLine(path string, arguments []string) string {
	typed := strings.Join(append([]string{path}, arguments[min(strings.Count(path, " "), len(arguments)):]...), "\x00")
	return strings.ReplaceAll(secrets.ReplaceAllString(typed, "$1..."), "\x00", " ")
}
