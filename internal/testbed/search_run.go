package testbed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/search"
)

// startWorkers starts a proxy for each worker if --target is set. The function stopWorkers stops these proxies.
func (r *searchRun) startWorkers() (stopWorkers func(), err error) {
	var stops []func()
	stopWorkers = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for n := range r.Workers {
		w := r.verdictRun
		if n > 0 && len(w.targets) > 0 { // the first worker uses the proxy that runs already
			p, err := w.proxied.start(w.Stderr)
			if err != nil {
				stopWorkers()
				return nil, err
			}
			stops = append(stops, p.stop)
			w.use(p)
		}
		r.perWorker = append(r.perWorker, w)
	}
	return stopWorkers, nil
}

func (r *searchRun) try(ctx context.Context, worker int, rules []fault.Rule, limit time.Duration) (*search.Trial, error) {
	v := r.perWorker[worker]
	said, printed := &tail{}, &tail{}
	v.Stdout, v.Stderr, v.limit = printed, said, limit
	faults, err := recoded[[]client.FaultRule](rules)
	if err != nil {
		return nil, err
	}
	as, err := v.begin(ctx, conditions{seed: r.Seed, faults: append([]client.FaultRule{}, faults...)})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	failed, err := v.runCommand(ctx, as)
	t := &search.Trial{Took: time.Since(began), LastLine: cmp.Or(said.last(), printed.last())}
	if failed != nil {
		var over overtime
		t.Failed, t.Hung = failed.Error(), errors.As(failed, &over)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictCalls)
	defer cancel()
	sessions, ended := as.end(ctx)
	for _, n := range sessions {
		t.Results = append(t.Results, n.Results...)
		for lines := json.NewDecoder(bytes.NewReader(n.journal)); lines.More() && ended == nil; {
			var e verdict.Entry
			ended = lines.Decode(&e)
			t.Entries = append(t.Entries, e)
		}
	}
	for i := range t.Results {
		v.policy.Apply(&t.Results[i])
	}
	return t, errors.Join(err, ended)
}

type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(p), nil
}

var errorLine = regexp.MustCompile(`(?i)\w*(error|exception|panic)\b`)

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.text), "?")), "\n")
	if said := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !errorLine.MatchString(line) }); len(said) > 0 {
		lines = said
	}
	// The line is written to files and HTML pages, so it must not contain control characters.
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, lines[len(lines)-1]))
}

func (r *searchRun) find(interrupt context.Context) int {
	ctx, cancel := context.WithTimeout(interrupt, r.budget)
	defer cancel()
	began, style := time.Now(), term.Of(r.Stderr, os.Getenv)
	line, told := term.NewStatus(r.Stderr, style.Terminal), time.Now()
	r.Progress = func(p search.Progress) {
		text := fmt.Sprintf("%s of %s: %s", time.Since(began).Round(time.Second), r.budget, p)
		line.Show(text)
		if !style.Terminal && time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Fprintln(r.Stderr, text)
		}
	}
	report, err := search.Search(ctx, r.Config)
	line.Clear()
	if interrupt.Err() != nil && report == nil {
		return exitInterrupted
	}
	if report == nil {
		return r.unsearchable(err)
	}
	if err = errors.Join(err, r.writeFindings(report), r.print(report)); err != nil {
		return max(r.Unusable(err), exitUnusable)
	}
	switch {
	case interrupt.Err() != nil:
		return exitInterrupted
	case len(report.Findings) > 0:
		return exitDifferent
	}
	return exitOK
}

func (r *searchRun) writeFindings(report *search.Report) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	page := search.Page{Report: report, Replays: map[string]string{}}
	for _, f := range report.All() {
		page.Replays[f.Name] = r.replayed(&f)
		content, err := f.YAML(page.Replays[f.Name])
		if err == nil {
			err = r.writeFile(filepath.Join(r.dir, f.Name+".yaml"), content)
		}
		if err != nil {
			return fmt.Errorf("--out: %w", err)
		}
	}
	var b strings.Builder
	if err := page.HTML(&b); err != nil {
		return err
	}
	return r.writeFile(filepath.Join(r.dir, "index.html"), []byte(b.String()))
}

func (r *searchRun) print(report *search.Report) error {
	if r.json {
		e := json.NewEncoder(r.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	var b strings.Builder
	for _, f := range report.All() {
		r.describe(&b, &f)
	}
	style := term.Of(r.Stdout, os.Getenv)
	color := term.Good
	if len(report.Findings) > 0 {
		color = term.Bad
	}
	fmt.Fprintf(&b, "%s. %s\nAll findings: %s\n", style.Paint(color, report.Headline()), report.Sum(), filepath.Join(r.dir, "index.html"))
	_, err := fmt.Fprint(r.Stdout, b.String())
	return err
}

func (r *searchRun) describe(b *strings.Builder, f *search.Finding) {
	style := term.Of(r.Stdout, os.Getenv)
	fmt.Fprintf(b, "%s\n  %s\n", style.Paint(term.Strong, f.Name), f.Words)
	for _, broken := range f.Breaks {
		fmt.Fprintf(b, "\n  %s: %s\n    found     %s\n    expected  %s\n", style.Paint(term.Bad, broken.Rule), broken.Title, broken.Found,
			broken.Expected)
		for _, line := range broken.Lines() {
			fmt.Fprintf(b, "    %s\n", style.Paint(term.Faint, line))
		}
		if broken.See != "" {
			fmt.Fprintf(b, "    see       %s\n", broken.See)
		}
	}
	fmt.Fprintf(b, "\n  %s. Replay:\n    %s\n\n", f.Rate(), r.replayed(f))
}

func (r *searchRun) replay(ctx context.Context) int {
	files, err := filepath.Glob(filepath.Join(r.regressions, "*.yaml"))
	if err != nil || len(files) == 0 {
		return r.Unusable(fmt.Errorf("--regressions: there is no *.yaml file in %s", r.regressions))
	}
	lists := make([][]fault.Rule, len(files))
	for i, file := range files {
		if lists[i], err = readFaults[fault.Rule](file); err != nil {
			return r.Unusable(fmt.Errorf("--regressions: %s: %w", file, err))
		}
	}
	breaks, err := search.Replay(ctx, r.Config, lists)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		return r.unsearchable(err)
	}
	code := exitOK
	for i, file := range files {
		if len(breaks[i]) == 0 {
			fmt.Fprintf(r.Stdout, "ok      %s\n", file)
			continue
		}
		code = exitDifferent
		fmt.Fprintf(r.Stdout, "BROKEN  %s\n", file)
		for _, b := range breaks[i] {
			fmt.Fprintf(r.Stdout, "          %s: %s\n", b.Rule, b.Found)
		}
	}
	return code
}

func (r *searchRun) unsearchable(err error) int {
	switch {
	case errors.Is(err, search.ErrSilent):
		err = fmt.Errorf("%w. %s", err, r.unusedAddress())
	case errors.Is(err, search.ErrBroken):
		err = fmt.Errorf("%s; fix this first:\n  %s", strings.ReplaceAll(err.Error(), "\n", ": "), r.verdictCommand("--profile", noFaults))
	}
	return r.Unusable(err)
}
