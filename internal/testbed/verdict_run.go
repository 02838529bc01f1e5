package testbed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testbed/summary"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const (
	verdictGrace = 5 * time.Second // time for the command to end after a signal
	verdictCalls = time.Minute     // time limit for this program's requests to the service
)

type conditions struct {
	profile string // empty: none
	seed    int64
	faults  []client.FaultRule // fault rules to try; nil unless this is a search
}

// series returns the conditions of all runs. A profile has a run for each seed. Without faults there is only one run, because the seed has
// no effect.
func (v *verdictRun) series() (all []conditions) {
	profiles := v.profiles
	switch {
	case slices.Contains(profiles, allProfiles):
		profiles = slices.DeleteFunc(append([]string{noFaults}, profileNames()...), func(name string) bool {
			return name == string(fault.Default) // skip the profile "default", because it combines the faults of the others
		})
	case len(profiles) == 0 && v.faults != "":
		profiles = []string{""}
	case len(profiles) == 0:
		profiles = []string{cmp.Or(v.profile, string(fault.Default))}
	}
	for _, profile := range profiles {
		seeds := v.seeds
		if profile == noFaults {
			profile, seeds = "", 1
		}
		for i := range seeds {
			all = append(all, conditions{profile: profile, seed: v.seed + int64(i)})
		}
	}
	return all
}

// judgedRules returns the rules of --rules, or all rules if the flag is missing. It leaves out the rules of --skip.
func (v *verdictRun) judgedRules(all []string) []string {
	rules := v.rules
	if len(rules) == 0 {
		rules = all
	}
	return slices.DeleteFunc(slices.Clone(rules), func(id string) bool { return slices.Contains(v.skip, id) })
}

func (v *verdictRun) run(ctx context.Context) int {
	return v.within(ctx, func() int { return v.judge(ctx) })
}

// within starts the service or proxy that the command needs, and calls `do`. Then it stops the service or proxy, and removes the folder of
// a started service.
func (v *verdictRun) within(ctx context.Context, do func() int) int {
	if _, err := exec.LookPath(v.command[0]); err != nil {
		return v.Unusable(fmt.Errorf("NOTHING JUDGED: the command %q was not found: %w", v.command[0], errors.Unwrap(err)))
	}
	all := verdict.IDs()
	if len(v.targets) > 0 {
		p, err := v.start(v.Stderr)
		if err != nil {
			return v.Unusable(err)
		}
		defer p.stop()
		v.use(p)
		all = p.rules
	}
	if len(v.skip) > 0 { // without --skip, the service chooses the rules
		v.rules = v.judgedRules(all)
	}
	if v.url != "" {
		return do()
	}
	path, err := stack.FindForgerun(v.binary)
	if err != nil {
		return v.Unusable(err)
	}
	v.token = rand.Text()
	s, err := newService(path, os.Environ(), v.scale, append(v.settings, "FORGERUN_ADMIN_TOKEN="+v.token)...)
	if err != nil {
		return v.Unusable(err)
	}
	if v.fetch != "" {
		s.command.Args = append(s.command.Args, "--fetch="+v.fetch)
	}
	if err := s.checkSettings(ctx, v.settings); err != nil {
		_ = os.RemoveAll(s.dir)
		return v.Unusable(fmt.Errorf("--set: %w", err))
	}
	v.url = s.url
	return s.play(ctx, v.Program, exitUnusable, do)
}

func (v *verdictRun) use(p *runningProxy) {
	v.url, v.control, v.hook, v.via = p.url, p.control, p.hook, p.via
}

func (v *verdictRun) judge(ctx context.Context) int {
	shown := &summary.Summary{Policy: v.policy, Baseline: v.baseline, Page: v.html}
	series := v.series()
	var err error
	for i, under := range series {
		if len(series) > 1 {
			fmt.Fprintf(v.Stderr, "Run %d of %d: %s, seed %d\n", i+1, len(series), cmp.Or(under.profile, v.faults, noFaults), under.seed)
		}
		if err = v.once(ctx, under, shown); err != nil || ctx.Err() != nil {
			break
		}
	}
	if v.update && err == nil && ctx.Err() == nil && shown.Requests() > 0 {
		err = v.updateBaseline(shown)
	}
	if shown.Requests() > 0 || len(shown.Sessions) > 0 && err == nil && ctx.Err() == nil {
		err = errors.Join(err, v.writeGuess(shown), v.write(shown))
	}
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		if code := v.Unusable(err); !shown.Failed() {
			return code
		}
		return exitDifferent
	case shown.Failed():
		return exitDifferent
	case shown.CommandFailed(), shown.Verdict() == verdict.NothingJudged:
		return exitUnusable
	}
	return exitOK
}

// once runs the command one time and adds the results of its sessions to the summary. A run can have several sessions: one for each value
// of the request header ForgeRun-Session.
func (v *verdictRun) once(ctx context.Context, under conditions, shown *summary.Summary) error {
	as, err := v.begin(ctx, under)
	if err != nil {
		return err
	}
	failed, err := v.runCommand(ctx, as)
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictCalls)
	defer cancel()
	sessions, ended := as.end(ctx)
	requests := 0
	for _, n := range sessions {
		shown.Add(v.faults, n.Verdict)
		requests += n.Recorded
		if v.html != "" {
			v.unwritten = cmp.Or(v.unwritten, v.writePage(n, len(shown.Sessions)))
		}
	}
	allowed := fault.Profile(under.profile).MayGiveUp()
	shown.AddRun(cmp.Or(under.profile, v.faults), failed != nil && !interrupted, allowed)
	if failed != nil && !interrupted {
		by := v.faults
		if under.profile != "" {
			by = "the profile " + under.profile
		}
		note := explainFailure(failed, sessions, by)
		if allowed {
			note += " That is allowed: this profile refuses some requests permanently."
		}
		shown.Notes = append(shown.Notes, note)
	}
	if requests == 0 && len(sessions) > 0 {
		shown.Notes = append(shown.Notes, v.unusedAddress())
	}
	return cmp.Or(err, ended)
}

// unusedAddress asks about the likely reason why no request arrived.
func (v *verdictRun) unusedAddress() string {
	if len(v.targets) > 0 {
		return "Does the command use FORGERUN_URL, or a variable of --url-env, instead of " + v.shown() + "?"
	}
	return "Does the command use FORGERUN_URL and FORGERUN_API_KEY?"
}

func explainFailure(failed error, sessions []shownSession, by string) string {
	requests, faulty := 0, 0
	var kinds []string
	var first, last *verdict.Moment
	for _, n := range sessions {
		requests, faulty = requests+n.Recorded, faulty+n.Faulty
		for _, f := range n.Verdict.Faults {
			if f.Times > 0 && !slices.Contains(kinds, f.Fault) {
				kinds = append(kinds, f.Fault)
			}
		}
		if n.First != nil && (first == nil || time.Time(n.First.At).Before(time.Time(first.At))) {
			first = n.First
		}
		if n.Last != nil && (last == nil || time.Time(n.Last.At).After(time.Time(last.At))) {
			last = n.Last
		}
	}
	text := fmt.Sprintf("Your command failed (%s).", failed)
	if first == nil {
		if by != "" {
			by = " (" + by + ")"
		}
		return fmt.Sprintf("%s ForgeRun had injected no faults into its %d requests%s.", text, requests, by)
	}
	text = fmt.Sprintf("%s ForgeRun had injected faults into %d of %d requests (%s): %s. The first fault: %s.", text, faulty, requests, by,
		strings.Join(kinds, ", "), inWords(first))
	if faulty > 1 {
		text += " The last fault: " + inWords(last) + "."
	}
	return text
}

func inWords(m *verdict.Moment) string {
	at := time.Time(m.At).UTC().Format("15:04:05.000")
	return fmt.Sprintf("%s %s, response: %s; fault: %s", at, m.Request, m.Answer, m.Fault)
}

type overtime struct{ limit time.Duration }

func (o overtime) Error() string { return fmt.Sprintf("the command was stopped after %v", o.limit) }

// runCommand runs the command in its own process group and kills the group afterwards. The result `failed` is the command's error. The
// result `err` is set if the clock could not be moved.
func (v *verdictRun) runCommand(ctx context.Context, as *judged) (failed, err error) {
	if v.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, v.limit, overtime{v.limit})
		defer cancel()
	}
	command := exec.CommandContext(ctx, v.command[0], v.command[1:]...)
	command.Env = append(os.Environ(), "FORGERUN_URL="+v.url, "FORGERUN_API_KEY="+as.key, "FORGERUN_SESSION="+as.session)
	if as.id != "" {
		command.Env = append(command.Env, "FORGERUN_CLIENT_ID="+as.id)
	}
	if v.via != nil {
		command.Env = append(command.Env, v.via.environment()...)
	}
	if v.hook != "" {
		command.Env = append(command.Env, "FORGERUN_WEBHOOK_URL="+v.hook)
	}
	for _, name := range v.urlNames {
		command.Env = append(command.Env, name+"="+v.url)
	}
	command.Stdin, command.Stdout, command.Stderr = v.stdin, term.Raw(v.Stdout), term.Raw(v.Stderr)
	if v.json {
		command.Stdout = command.Stderr
	}
	stack.OwnGroup(command)
	command.Cancel = func() error { return stack.SignalGroup(command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = verdictGrace
	moved := make(chan error, 1)
	moving, stop := context.WithCancel(ctx)
	go func() {
		if v.advance.by == 0 {
			moved <- nil
		} else {
			moved <- v.advance.run(moving, as.Client, as.session)
		}
	}()
	if failed = command.Run(); failed != nil && ctx.Err() != nil {
		failed = context.Cause(ctx)
	}
	stop()
	if command.Process != nil {
		_ = stack.SignalGroup(command.Process.Pid, syscall.SIGKILL) // may fail: the group may be empty
	}
	return failed, <-moved
}
