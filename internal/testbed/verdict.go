package testbed

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testbed/summary"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const verdictHelp = `Judges a client: runs COMMAND, injects faults into its HTTP traffic, and reports
which rules of the standards the client kept and broke, with the evidence.

By default it starts its own ForgeRun on free loopback ports, with its data in a
temporary folder. With --url it uses a running one. With --target it starts a proxy in
front of any other HTTP API. It recognises that API's jobs by the standards, such as 202
with Location, and by the description in --api or --openapi.

COMMAND finds the service in these variables: FORGERUN_URL, FORGERUN_API_KEY,
FORGERUN_CLIENT_ID, and those that --url-env names. The output of COMMAND is shown.

Without --profile the profile is "default": it injects one fault of each kind, within half
a minute. --profile none injects no faults. With --profiles or --seeds, the command runs
once for each profile and seed, each time as a new client.

Profiles:
%s
These profiles refuse some requests permanently, so the command may fail:
%s

Requests that have the same value in their ForgeRun-Session header, such as the name of a
test, are judged in a session of their own. The results of several sessions are in one
table, on one page that links to a page for each, and in one JUnit file with a suite for each.

With --json, standard output has only the verdict, as JSON; the output of the command goes
to standard error.

Exit codes; if several apply to the runs, the first of these:
  130  interrupted (Ctrl-C): the traffic until then is judged, and the verdict printed
  1  FAILED: the client broke a rule of level "must" that is not in the baseline, or
     created a duplicate; or what --require or --complete demands is missing; or the
     baseline lists a rule that is no longer broken
  2  NOTHING JUDGED: no request came, the target never answered, or no submission was
     recognised; or the command failed, or a file could not be written
  0  PASSED, or PASSED WITH WARNINGS: the client broke only rules of level "should"`

// verdictRun runs a command one or more times against a service, and prints the verdicts.
type verdictRun struct {
	command.Program
	proxied
	url, key, token string   // url, key: address and API key of the service; token: operator token of a started service
	urlNames        []string // further environment variables in which the command gets the URL
	control         string   // address of the proxy's API for sessions; "": the same as `url`
	hook            string   // address for the target's webhooks
	via             *forwarding
	binary, fetch   string // `fetch`: where a started service downloads Postgres from, if none is installed
	scale           float64
	settings        []string
	profile         string
	profiles        []string
	seed            int64
	seeds           int
	faults          string
	ownFaults       []client.FaultRule
	advance         advance
	limit           time.Duration // time limit of each run of the command; 0: none
	rules, skip     []string
	policy          summary.Policy
	json            bool // print JSON; the command's standard output then goes to standard error
	jsonFile        string
	junit, html     string // paths
	markdown        string // path
	baselinePath    string
	baseline        *summary.Baseline // nil: none
	update          bool
	shared          bool  // reports are readable for other users
	unwritten       error // first error while writing a session's page
	command         []string
	stdin           io.Reader

	first shownSession // first session; its page is moved into a folder if there is a second session
}

func verdictCommand(p command.Program) *cobra.Command {
	v := &verdictRun{Program: p, proxied: proxied{listen: anyPort}, stdin: os.Stdin}
	c := &cobra.Command{
		Use: "verdict [flags] -- COMMAND [ARGUMENT...]", Short: "Judge your client",
		Long:                  fmt.Sprintf(verdictHelp, columns(profileNames()), columns(refusing())),
		DisableFlagsInUseLine: true,
		Example: `  forgerun verdict -- go test ./...
  forgerun verdict --profile flaky-network --seed 7 --html verdict.html -- pytest
  forgerun verdict --profiles all --seeds 3 --junit verdict.xml -- pytest -n 4
  forgerun verdict --require lost-answer,stream-resume --warn correlation-ids --profile failover -- npm test
  forgerun verdict --baseline forgerun-baseline.yaml --profiles all -- pytest
  forgerun verdict --set FORGERUN_API_KEY_TTL=20s --advance 25h -- python3 nightly.py
  forgerun verdict --url http://127.0.0.1:8080 --key frk_... --faults faults.yaml -- npm test
  forgerun verdict --target http://127.0.0.1:3000 --profile flaky-network --url-env API_URL -- npm test
  forgerun verdict --target https://api.example.com --forward -- python3 nightly.py`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if v.command, err = commandOf(c, args); err != nil {
				return err
			}
			if err := cmp.Or(v.check(c.Flags()), v.checkFiles(), v.readBaseline(), v.readFaults()); err != nil {
				return command.Usagef("%w (%s --help)", err, c.CommandPath())
			}
			return command.Code(v.run(c.Context()))
		},
	}
	groupFlags(c, v.serviceFlags(), v.targetFlags(), v.faultFlags(), v.ruleFlags(), v.fileFlags())
	complete(c, append(profileNames(), noFaults), "profile")
	complete(c, append(profileNames(), noFaults, allProfiles), "profiles")
	complete(c, verdict.IDs(), "rules", "skip", "require", "warn")
	return c
}

func (v *verdictRun) serviceFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("The ForgeRun that judges", pflag.ContinueOnError)
	f.StringVar(&v.url, "url", "", "`address` of a running test bed; without it, one is started")
	f.StringVar(&v.key, "key", os.Getenv("FORGERUN_API_KEY"), "API `key` of the client at --url (FORGERUN_API_KEY); without it, each run\n"+
		"registers a client")
	f.Lookup("key").DefValue = ""
	f.StringArrayVar(&v.settings, "set", nil, "variable of the started service, as `NAME=VALUE`; may be repeated")
	f.Float64Var(&v.scale, "time-scale", 1, "`factor` by which the started service multiplies the durations of jobs")
	f.StringVar(&v.binary, "forgerun", "", "`path` of the forgerun binary (default: this one)")
	f.StringVar(&v.fetch, "fetch", "", "if no Postgres is installed, fetch a private copy for the started service,\n"+
		"from Maven Central or a mirror at `url`")
	f.Lookup("fetch").NoOptDefVal = stack.MavenCentral
	f.StringSliceVar(&v.urlNames, "url-env", nil, "`names` of further environment variables in which COMMAND finds the service's address")
	return f
}

func (v *verdictRun) targetFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("To judge clients of another API", pflag.ContinueOnError)
	v.flags(f)
	return f
}

func (v *verdictRun) faultFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("Faults", pflag.ContinueOnError)
	f.StringVar(&v.profile, "profile", "", "`name` of the fault profile; none: no faults; if not given: the profile named default")
	f.StringSliceVar(&v.profiles, "profiles", nil, "`names` of profiles, separated by commas: the command runs under each in turn;\n"+
		"none: a run without faults; all: a run without faults, then one with each profile except default")
	f.Int64Var(&v.seed, "seed", 1, "`number` that seeds the choice of faults")
	f.IntVar(&v.seeds, "seeds", 1, "`number` of runs under each profile, with consecutive seeds from --seed on")
	f.StringVar(&v.faults, "faults", "", "`file` with your own faults instead of a profile: an array of rules as in\n"+
		"PUT /v1/testbed/faults, as JSON or YAML")
	f.DurationVar(&v.limit, "time-limit", 0, "`duration` after which a run of the command is stopped and counts as failed (default: no limit)")
	f.Var(&v.advance, "advance", "`duration` by which the service's clock moves after the first request of the command;\n"+
		"1h/1s moves it by 1h every second until the command ends")
	return f
}

func (v *verdictRun) ruleFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("Rules", pflag.ContinueOnError)
	f.StringSliceVar(&v.rules, "rules", nil, "`ids` of the rules to judge, separated by commas; default: all")
	f.StringSliceVar(&v.skip, "skip", nil, "`ids` of rules not to judge")
	f.StringSliceVar(&v.policy.Require, "require", nil, "`ids` of rules that at least one session must test and find kept,\n"+
		"and that no session may find broken, even those of level \"should\"")
	f.StringSliceVar(&v.policy.Warn, "warn", nil, "`ids` of rules that only warn: they are reported and do not change the exit code")
	f.StringVar(&v.baselinePath, "baseline", "", "`file` with the rules that the client is known to break. They do not fail the run, but\n"+
		"other broken rules do, and so does an entry for a rule that the client no longer breaks")
	f.BoolVar(&v.update, "update-baseline", false, "write the rules broken in this run to the file of --baseline (default: "+baselineFile+")")
	f.BoolVar(&v.policy.Strict, "strict", false, "also fail if the client breaks a rule of level \"should\"")
	f.BoolVar(&v.policy.Complete, "complete", false, "fail unless every rule was tested and every fault of the profiles\n"+
		"happened in at least one session")
	return f
}

func (v *verdictRun) fileFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("Output", pflag.ContinueOnError)
	command.JSON(f, &v.json)
	f.StringVar(&v.junit, "junit", "", "`file` for the verdict as JUnit XML: a test suite for each session")
	f.StringVar(&v.html, "html", "", "`file` for the verdict as a page; for several sessions it links to a page for each, in a folder beside")
	f.StringVar(&v.jsonFile, "json-file", "", "`file` for the verdict as JSON")
	f.StringVar(&v.markdown, "summary", "", "`file` for a summary in Markdown; GitHub Actions also shows it as the summary of the step")
	f.BoolVar(&v.shared, "shared-files", false, "let other users read the files of this output (mode 0644, not 0600)")
	return f
}

func commandOf(c *cobra.Command, args []string) ([]string, error) {
	at := c.ArgsLenAtDash()
	if at > 0 || at < 0 && len(args) > 0 {
		return nil, command.Usagef("unexpected argument %q: the command follows -- (%s --help)", args[0], c.CommandPath())
	}
	if len(args) == 0 {
		return nil, command.Usagef("there is no command to run: %[1]s [flags] -- COMMAND (%[1]s --help)", c.CommandPath())
	}
	return args, nil
}

// reservedVariables lists the variables that this command sets for a service that it starts.
var reservedVariables = []string{
	"FORGERUN_DATA_DIR", "FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR", "FORGERUN_ADMIN_TOKEN", "FORGERUN_LOG_FORMAT",
}

func (v *verdictRun) check(f *pflag.FlagSet) error {
	targeted := len(v.targets) > 0
	own := !targeted && v.url == ""
	for _, c := range []struct {
		wrong bool
		why   string
	}{
		{targeted && v.url != "", "--target (another API) and --url (a running ForgeRun) cannot be combined"},
		{!targeted && v.api != "", "--api needs --target"},
		{!targeted && v.forward, "--forward needs --target"},
		{f.Changed("key") && v.url == "", "--key needs --url"},
		{len(v.settings) > 0 && !own, "--set needs the service that verdict starts: it cannot be combined with --url or --target"},
		{v.fetch != "" && !own, "--fetch needs the service that verdict starts: it cannot be combined with --url or --target"},
		{v.advance.by > 0 && targeted, "--advance moves the clock of a ForgeRun service: it cannot be combined with --target"},
		{len(v.profiles) > 0 && v.profile != "", "--profile and --profiles cannot be combined"},
		{v.faults != "" && (v.profile != "" || len(v.profiles) > 0), "--faults replaces a profile: remove --profile and --profiles"},
		{v.seeds < 1, "--seeds must be at least 1"},
		{v.limit < 0, "--time-limit must not be negative"},
	} {
		if c.wrong {
			return errors.New(c.why)
		}
	}
	for _, setting := range v.settings {
		name, _, ok := strings.Cut(setting, "=")
		if !ok || !strings.HasPrefix(name, "FORGERUN_") {
			return fmt.Errorf("--set %q must be NAME=VALUE, with a variable that 'forgerun config --all' names", setting)
		}
		if slices.Contains(reservedVariables, name) {
			return fmt.Errorf("--set cannot change %s: forgerun sets this variable itself", name)
		}
	}
	return v.checkNames()
}

func (v *verdictRun) checkNames() error {
	names := profileNames()
	for _, name := range append(slices.Clone(v.profiles), v.profile) {
		if name != "" && !slices.Contains(append(names, noFaults), name) && (name != allProfiles || name == v.profile) {
			return fmt.Errorf("unknown profile %q; use one of %s", name, strings.Join(names, ", "))
		}
	}
	for _, id := range slices.Concat(v.rules, v.skip, v.policy.Require, v.policy.Warn) {
		if !slices.Contains(verdict.IDs(), id) {
			return fmt.Errorf("unknown rule %q; the rules are %s", id, strings.Join(verdict.IDs(), ", "))
		}
	}
	judged := v.judgedRules(verdict.IDs())
	if len(judged) == 0 {
		return errors.New("--skip leaves no rule to judge")
	}
	for _, id := range v.policy.Require {
		if slices.Contains(v.policy.Warn, id) || !slices.Contains(judged, id) {
			return fmt.Errorf("--require names the rule %s: --rules must include it, and --skip and --warn must not", id)
		}
	}
	return nil
}

const (
	noFaults    = "none"
	allProfiles = "all"
)

// refusing returns the profiles that allow the command to fail.
func refusing() (names []string) {
	for _, p := range fault.Profiles {
		if p.MayGiveUp() {
			names = append(names, string(p))
		}
	}
	return names
}

func profileNames() (names []string) {
	for _, p := range fault.Profiles {
		names = append(names, string(p))
	}
	return names
}

func columns(names []string) string {
	var lines []string
	for line := range slices.Chunk(names, 6) {
		lines = append(lines, "  "+strings.Join(line, ", "))
	}
	return strings.Join(lines, ",\n")
}

// complete makes the shell propose the names as values of these flags.
func complete(c *cobra.Command, names []string, flags ...string) {
	for _, flag := range flags {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	}
}

func groupFlags(c *cobra.Command, groups ...*pflag.FlagSet) {
	for _, g := range groups {
		g.SortFlags = false
		c.Flags().AddFlagSet(g)
	}
	c.SetUsageFunc(func(c *cobra.Command) error {
		w := c.OutOrStderr()
		_, err := fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", c.UseLine(), c.Example)
		for _, g := range groups {
			_, _ = fmt.Fprintf(w, "\n%s:\n%s", g.Name(), g.FlagUsages())
		}
		return err
	})
}
