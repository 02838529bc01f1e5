package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/stack"
)

const verdictHelp = `Tells whether a client is right: of ForgeRun, or with --target of any HTTP API.

Starts a whole ForgeRun of its own ("forgerun dev" as a child process, on free
loopback ports, with its data in a temporary folder), or uses the one at --url,
gives the command FORGERUN_URL and FORGERUN_API_KEY, disturbs what it does as the
profile says, and prints which rules it kept and broke, with the evidence. What the
command prints is passed on.

With --target it starts a proxy before that server instead, and gives the command
the proxy's address as FORGERUN_URL, and in the variables that --url-env names. What
is a job there is found out by the standards (202 with Location and the like), and
by --api, a ready-made description or a file. Nothing else is needed.

Profiles: flaky-network, overloaded, maintenance-window, slow-everything, failover,
duplicate-deliveries

Exit codes:
  0  no rule that says must was broken, and the command ended with 0
  1  a rule was broken (with --strict also one that says should), or with --complete one was not exercised, or the client
     met not all faults of the profile
  2  the command failed, or nothing could be judged: it asked nothing of ForgeRun`

const (
	verdictGrace = 5 * time.Second // for the command to end, once it was asked to
	verdictCalls = time.Minute     // for what the simulator itself asks the service
	verdictFile  = 0o644
)

// verdictRun is one run of a command against a service, and what to do with the verdict.
type verdictRun struct {
	request     client.SessionRequest
	url, binary string
	proxied
	urlNames          []string // variables that get the url too
	control           string   // where sessions are; empty: at the url
	hook              string   // where the target is to send webhooks
	scale             float64
	json, junit, html string
	complete, strict  bool
	command           []string
	Program
}

func (p Program) verdictCommand() *cobra.Command {
	v := verdictRun{Program: p, proxied: proxied{listen: "127.0.0.1:0"}}
	rules := ""
	c := &cobra.Command{
		Use: "verdict [flags] -- COMMAND [ARGUMENT...]", Short: "Tell whether a client of yours is right", Long: verdictHelp,
		DisableFlagsInUseLine: true,
		Example: `  forgerun verdict -- go test ./...
  forgerun verdict --profile flaky-network --seed 7 --html verdict.html -- pytest
  forgerun verdict --rules idempotency-key,lost-answer --junit verdict.xml -- npm test
  forgerun verdict --target http://127.0.0.1:3000 --profile flaky-network --url-env API_URL -- npm test`,
		RunE: func(c *cobra.Command, args []string) error {
			at := c.ArgsLenAtDash()
			if at > 0 || at < 0 && len(args) > 0 {
				return command.Usagef("unexpected argument %q: the command follows -- (%s --help)", args[0], c.CommandPath())
			}
			if v.command = args; len(args) == 0 {
				return command.Usagef("there is no command to run: %[1]s [flags] -- COMMAND (%[1]s --help)", c.CommandPath())
			}
			if v.target != "" && v.url != "" || v.target == "" && v.api != "" {
				return command.Usagef("--target and --api are for other APIs, --url is for a running ForgeRun (%s --help)", c.CommandPath())
			}
			if rules != "" {
				v.request.Rules = strings.Split(rules, ",")
			}
			return command.Code(v.run(c.Context()))
		},
	}
	f := c.Flags()
	f.StringVar(&v.request.Profile, "profile", "", "`name` of the faults that are brought about; none without it")
	f.Int64Var(&v.request.Seed, "seed", 1, "`number` that the faults are drawn by")
	f.StringVar(&rules, "rules", "", "`ids` of the rules to judge, separated by commas; all without it")
	f.StringVar(&v.url, "url", "", "`address` of a running test bed, instead of a service of its own")
	v.flags(f)
	f.StringSliceVar(&v.urlNames, "url-env", nil, "`names` of further variables that tell the command the address")
	f.StringVar(&v.binary, "forgerun", "", "`path` of the forgerun binary (default: next to this one)")
	f.Float64Var(&v.scale, "time-scale", 1, "`factor` of the durations of jobs, in a service of its own")
	f.StringVar(&v.json, "json", "", "`file` for the verdict as JSON")
	f.StringVar(&v.junit, "junit", "", "`file` for the verdict as JUnit XML")
	f.StringVar(&v.html, "html", "", "`file` for the verdict as a page")
	f.BoolVar(&v.strict, "strict", false, "fail also if a rule was broken that says should")
	f.BoolVar(&v.complete, "complete", false, "fail if a rule was not exercised, or a fault of the profile not met")
	return c
}

// run has the command judged by a service. However it ends, a service of its own is stopped, and its folder removed.
func (v *verdictRun) run(ctx context.Context) int {
	switch {
	case v.url != "":
		return v.judge(ctx)
	case v.target != "":
		p, err := v.start(v.Stderr)
		if err != nil {
			return v.Unusable(err)
		}
		defer p.stop()
		v.url, v.control, v.hook = p.url, p.control, p.hook
		return v.judge(ctx)
	}
	path, err := trial.FindBinary(v.binary)
	if err != nil {
		return v.Unusable(err)
	}
	s, err := newService(path, os.Environ(), v.scale)
	if err != nil {
		return v.Unusable(err)
	}
	v.url = s.url
	return s.play(ctx, v.Program, exitUnusable, func() int { return v.judge(ctx) })
}

// judge runs the command, prints the verdict and gives the exit code.
func (v *verdictRun) judge(ctx context.Context) int {
	result, failed, err := v.session(ctx)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return v.Unusable(err)
	case v.exitCode(result) != exitOK:
		return exitDifferent
	case v.complete && (result.Counts[ruleNotExercised] > 0 || unmet(result) > 0):
		_, _ = fmt.Fprintf(v.Stderr, "%s: not complete: %d rules were not exercised, and %d faults of the profile not met\n",
			v.Name, result.Counts[ruleNotExercised], unmet(result))
		return exitDifferent
	case failed != nil:
		return v.Unusable(fmt.Errorf("the command failed: %w", failed))
	}
	return exitOK
}

// exitCode is what a verdict alone comes to.
func (v *verdictRun) exitCode(result *client.Verdict) int {
	if result.Verdict == clientWrong || v.strict && result.Verdict == clientImprovable {
		return exitDifferent
	}
	return exitOK
}

// session runs the command in a session of a new client. It gives the verdict, and how the command failed.
func (v *verdictRun) session(ctx context.Context) (result *client.Verdict, failed, err error) {
	c, id, key, err := v.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	failed = v.runCommand(ctx, key)
	ctx, cancel := context.WithTimeout(ctx, verdictCalls)
	defer cancel()
	if result, err = ended(ctx, c, id); err == nil {
		err = v.write(ctx, c, result)
	}
	if err == nil && failed == nil && result.Exchanges == 0 {
		err = errors.New("nothing was asked of ForgeRun: does the command use FORGERUN_URL and FORGERUN_API_KEY?")
		if v.target != "" {
			err = fmt.Errorf("nothing was asked of %s through the proxy: does the command use FORGERUN_URL, or a variable of --url-env?", v.target)
		}
	}
	return result, failed, err
}

// begin registers a client, and starts its session.
func (v *verdictRun) begin(ctx context.Context) (c *client.Client, session, key string, err error) {
	ctx, cancel := context.WithTimeout(ctx, verdictCalls)
	defer cancel()
	if v.control == "" {
		if _, key, err = stack.Register(ctx, v.url); err != nil {
			return nil, "", "", err
		}
	}
	if c, err = client.New(client.Config{URL: cmp.Or(v.control, v.url), Key: key}); err != nil {
		return nil, "", "", err
	}
	began, err := c.StartSession(ctx, v.request)
	if err != nil {
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == 404 {
			err = fmt.Errorf("the service at %s is no test bed: set FORGERUN_TESTBED=true, or use forgerun dev", v.url)
		}
		return nil, "", "", err
	}
	return c, began.SessionID, key, nil
}

// runCommand runs the command in a process group of its own, of which nothing is left afterwards.
func (v *verdictRun) runCommand(ctx context.Context, key string) error {
	command := exec.CommandContext(ctx, v.command[0], v.command[1:]...)
	command.Env = append(os.Environ(), "FORGERUN_URL="+v.url, "FORGERUN_API_KEY="+key)
	if v.hook != "" {
		command.Env = append(command.Env, "FORGERUN_WEBHOOK_URL="+v.hook)
	}
	for _, name := range v.urlNames {
		command.Env = append(command.Env, name+"="+v.url)
	}
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, v.Stdout, v.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = verdictGrace
	err := command.Run()
	if command.Process != nil {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // the group may be empty
	}
	return err
}

// write prints the verdict, and writes the files that were asked for.
func (v *verdictRun) write(ctx context.Context, c *client.Client, result *client.Verdict) error {
	for _, file := range []struct {
		path, form string
	}{{v.json, "application/json"}, {v.junit, "application/xml"}, {v.html, "text/html"}} {
		if file.path == "" {
			continue
		}
		text, err := c.VerdictAs(ctx, result.SessionID, file.form)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file.path, text, verdictFile); err != nil {
			return err
		}
	}
	return writeVerdict(v.Stdout, term.Of(v.Stdout, os.Getenv), result)
}
