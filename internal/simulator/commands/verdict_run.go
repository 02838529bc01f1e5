package commands

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/summary"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/redact"
)

const (
	verdictGrace = 5 * time.Second // for the command to end, once it was asked to
	verdictCalls = time.Minute     // for what the simulator itself asks the service
	privateFile  = 0o600           // of reports: they show the client's requests
	sharedFile   = 0o644           // with --shared-files
)

// writeFile writes a report that only the owner can read, also where a file was that others could, unless it is to be shared.
func (v *verdictRun) writeFile(path string, content []byte) error {
	mode := os.FileMode(privateFile)
	if v.shared {
		mode = sharedFile
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() { // not of a device such as /dev/stdout
		err = cmp.Or(f.Chmod(mode), f.Truncate(0)) // before anything is in it
	}
	if err == nil {
		_, err = f.Write(content)
	}
	return cmp.Or(err, f.Close())
}

// conditions are what the command runs under: a profile, or none, and what the faults are drawn by.
type conditions struct {
	profile string // empty: none
	seed    int64
}

// series is what the command runs under, one after the other. Without faults there is nothing to be drawn.
func (v *verdictRun) series() (all []conditions) {
	profiles := v.profiles
	if len(profiles) == 0 {
		profiles = []string{v.profile}
	}
	if at := slices.Index(profiles, allProfiles); at >= 0 {
		profiles = append([]string{noFaults}, profileNames()...)
	}
	for _, profile := range profiles {
		seeds := v.seeds
		if profile == noFaults {
			profile, seeds = "", 1
		}
		for i := range seeds {
			all = append(all, conditions{profile, v.seed + int64(i)})
		}
	}
	return all
}

// judgedRules are those to judge: the given ones, or else all, without those to skip.
func (v *verdictRun) judgedRules(all []string) []string {
	rules := v.rules
	if len(rules) == 0 {
		rules = all
	}
	return slices.DeleteFunc(slices.Clone(rules), func(id string) bool { return slices.Contains(v.skip, id) })
}

// run has the command judged by a service. However it ends, a service of its own is stopped, and its folder removed.
func (v *verdictRun) run(ctx context.Context) int {
	all := verdict.IDs()
	if v.target != "" {
		p, err := v.start(v.Stderr)
		if err != nil {
			return v.Unusable(err)
		}
		defer p.stop()
		v.url, v.control, v.hook, all = p.url, p.control, p.hook, p.rules
	}
	if len(v.skip) > 0 { // otherwise the service knows which
		v.rules = v.judgedRules(all)
	}
	if v.url != "" {
		return v.judge(ctx)
	}
	path, err := trial.FindBinary(v.binary)
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
	return s.play(ctx, v.Program, exitUnusable, func() int { return v.judge(ctx) })
}

// judge runs the command under all conditions, prints what its sessions have shown, and gives the exit code.
func (v *verdictRun) judge(ctx context.Context) int {
	shown := &summary.Summary{Policy: v.policy, Page: v.html}
	series, failed := v.series(), false
	var err error
	for i, under := range series {
		if len(series) > 1 {
			fmt.Fprintf(v.Stderr, "Run %d of %d: %s, seed %d\n", i+1, len(series), cmp.Or(under.profile, v.faults, noFaults), under.seed)
		}
		var broke error
		if broke, err = v.once(ctx, under, shown); err != nil || ctx.Err() != nil {
			break
		}
		if failed = failed || broke != nil; broke != nil {
			v.Unusable(broke)
		}
	}
	if shown.Requests() > 0 || len(shown.Sessions) > 0 && err == nil && ctx.Err() == nil {
		err = cmp.Or(err, v.write(shown))
	}
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return v.Unusable(err)
	case shown.Failed():
		return exitDifferent
	case failed:
		return exitUnusable
	}
	return exitOK
}

// once runs the command in a session, and adds what that and those with a label have shown. It gives how the command failed.
func (v *verdictRun) once(ctx context.Context, under conditions, shown *summary.Summary) (failed, err error) {
	as, err := v.begin(ctx, under)
	if err != nil {
		return nil, err
	}
	failed, err = v.runCommand(ctx, as)
	if failed != nil {
		failed = fmt.Errorf("the command failed: %w", failed)
	}
	if ctx.Err() != nil {
		failed = nil // it was asked to end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictCalls)
	defer cancel()
	sessions, ended := as.end(ctx)
	requests := 0
	for _, n := range sessions {
		shown.Add(v.faults, n.Verdict)
		requests += n.Recorded
		if v.html != "" {
			ended = cmp.Or(ended, v.writePage(n.page, len(shown.Sessions)))
		}
	}
	if failed == nil && requests == 0 {
		failed = errors.New("nothing was asked of ForgeRun: does the command use FORGERUN_URL and FORGERUN_API_KEY?")
		if v.target != "" {
			failed = fmt.Errorf("nothing was asked of %s through the proxy: does the command use FORGERUN_URL, or a variable of --url-env?",
				redact.URL(v.target))
		}
	}
	return failed, cmp.Or(err, ended)
}

// runCommand runs the command in a process group of its own, of which nothing is left afterwards. It gives how the command failed, and
// why the clock could not be moved meanwhile.
func (v *verdictRun) runCommand(ctx context.Context, as *judged) (failed, err error) {
	command := exec.CommandContext(ctx, v.command[0], v.command[1:]...)
	command.Env = append(os.Environ(), "FORGERUN_URL="+v.url, "FORGERUN_API_KEY="+as.key)
	if as.id != "" {
		command.Env = append(command.Env, "FORGERUN_CLIENT_ID="+as.id)
	}
	if v.hook != "" {
		command.Env = append(command.Env, "FORGERUN_WEBHOOK_URL="+v.hook)
	}
	for _, name := range v.urlNames {
		command.Env = append(command.Env, name+"="+v.url)
	}
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, term.Raw(v.Stdout), term.Raw(v.Stderr)
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
	failed = command.Run()
	stop()
	if command.Process != nil {
		_ = stack.SignalGroup(command.Process.Pid, syscall.SIGKILL) // the group may be empty
	}
	return failed, <-moved
}

// writePage writes the page of the session with a number: the first one as the file that was asked for, until there is a second. Then
// each is in a folder beside it.
func (v *verdictRun) writePage(page []byte, number int) error {
	if number == 1 {
		return v.writeFile(v.html, page)
	}
	if err := os.MkdirAll(filepath.Join(filepath.Dir(v.html), v.pageFolder()), 0o755); err != nil {
		return err
	}
	if number == 2 {
		if err := os.Rename(v.html, v.pagePath(1)); err != nil {
			return err
		}
	}
	return v.writeFile(v.pagePath(number), page)
}

// pageFolder is the name of the folder of pages, and pagePath a page in it.
func (v *verdictRun) pageFolder() string {
	return strings.TrimSuffix(filepath.Base(v.html), ".html") + "-sessions"
}

func (v *verdictRun) pagePath(number int) string {
	return filepath.Join(filepath.Dir(v.html), v.pageFolder(), strconv.Itoa(number)+".html")
}

// index writes the page that links those of the sessions, if there are several.
func (v *verdictRun) index(shown *summary.Summary) func(io.Writer) error {
	return func(w io.Writer) error {
		var links []string
		for i := range shown.Sessions {
			links = append(links, v.pageFolder()+"/"+strconv.Itoa(i+1)+".html")
		}
		return shown.Index(w, links)
	}
}

// write prints what the sessions have shown, and writes the files that were asked for.
func (v *verdictRun) write(shown *summary.Summary) error {
	index := v.html
	if len(shown.Sessions) == 1 {
		index = "" // it is the session's page
	}
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{{v.json, shown.JSON}, {v.junit, shown.JUnit}, {index, v.index(shown)}} {
		if file.path == "" {
			continue
		}
		var b bytes.Buffer
		if err := file.write(&b); err != nil {
			return err
		}
		if err := v.writeFile(file.path, b.Bytes()); err != nil {
			return err
		}
	}
	return shown.Text(v.Stdout, term.Of(v.Stdout, os.Getenv))
}
