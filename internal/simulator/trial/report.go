package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Summarize adds the verdict, the expectations and the description of the run to the recorder's numbers.
func (t *Trial) Summarize(a report.Run, verdict *judge.Verdict) report.Run {
	s := t.o.Scenario
	a.Scenario, a.Description, a.Seed, a.Command, a.Text = s.Name, s.Description, s.Seed, t.o.Command, s.Text
	a.Verdict, a.Notes = verdict, t.notes
	a.Expectations = expectations(s.Expect, a.Numbers)
	if t.unhealed != nil {
		a.Expectations = append(a.Expectations, report.Expectation{
			Name: "recovery", Want: "every process ready within " + patience.String() + " of the last fault", Got: t.unhealed.Error(),
		})
	}
	if t.expectsKinds() {
		var err error
		if a.WorkKinds, err = t.workKinds(verdict); err != nil {
			a.Notes = append(a.Notes, fmt.Sprintf("the work kinds could not be compared: %v", err))
		}
		got := strconv.Itoa(a.KindsMet())
		for _, k := range a.WorkKinds {
			if !k.OK() {
				got += ", not " + k.Kind
			}
		}
		a.Expectations = append(a.Expectations, report.Expectation{
			Name: "work kinds as expected", Want: strconv.Itoa(len(a.WorkKinds)), Got: got, OK: err == nil && a.KindsMet() == len(a.WorkKinds),
		})
	}
	a.Machine = map[string]string{
		"System": runtime.GOOS + "/" + runtime.GOARCH, "Processors": strconv.Itoa(runtime.NumCPU()), "Program": t.o.Program,
	}
	a.Service = map[string]string{"Service": t.url}
	if t.stack != nil {
		a.Service["Workers"] = s.Service.Workers
		a.Service["Concurrent jobs per worker"] = strconv.Itoa(s.Service.Concurrency)
		a.Service["Lease"] = cmp.Or(s.Service.Env["FORGERUN_LEASE_TIMEOUT"], t.o.Lease.String())
	}
	if t.o.TimeScale != nil {
		a.Service["Time scale"] = strconv.FormatFloat(*t.o.TimeScale, 'g', -1, 64)
	}
	if s.Chaos != "" {
		a.Service["Faults"] = s.Chaos
	}
	return a
}

func expectations(e scenario.Expect, n report.Numbers) (list []report.Expectation) {
	percent := func(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }
	add := func(name, want, got string, ok bool) {
		list = append(list, report.Expectation{Name: name, Want: want, Got: got, OK: ok})
	}
	want, got := float64(e.Accepted), n.Share(report.Accepted, report.Replayed, report.Planned)
	add("submissions accepted or refused as planned", "at least "+percent(want), percent(got), got >= want)
	list[0].Evidence = true
	if e.Refused != nil {
		want, got := float64(*e.Refused), n.Share(report.Refused)
		add("refused submissions", "at most "+percent(want), percent(got), got <= want)
	}
	latency := func(name string, want time.Duration, got report.Latency) {
		switch {
		case want == 0:
		case got.Count == 0:
			add(name, "at most "+want.String(), "nothing to measure", false)
		default:
			add(name, "at most "+want.String(), got.P99.Round(time.Microsecond).String(), got.P99 <= want)
		}
	}
	latency("p99 of submissions", e.SubmitP99, n.Submit)
	latency("p99 of jobs' ends", e.FinishP99, n.Finish)
	return list
}

// Write writes the report and prints its path. It deletes the history unless Options.Keep is set or an invariant was violated.
func (t *Trial) Write(a report.Run) error {
	for _, f := range []struct {
		name  string
		write func(io.Writer, report.Run) error
	}{{"report.html", report.WriteHTML}, {"report.json", report.WriteJSON}, {"junit.xml", report.WriteJUnit}} {
		file, err := os.Create(filepath.Join(t.o.Out, f.name))
		if err != nil {
			return err
		}
		if err := errors.Join(f.write(file, a), file.Close()); err != nil {
			return err
		}
	}
	if err := report.WriteSummary(t.o.Stdout, a); err != nil {
		return err
	}
	fmt.Fprintf(t.o.Stdout, "\nReport: %s\n", filepath.Join(t.o.Out, "report.html"))
	if t.o.Keep || a.Outcome() == report.Violated {
		fmt.Fprintf(t.o.Stdout, "History and logs: %s\n", t.o.Out)
		return t.keepLogs()
	}
	return os.RemoveAll(filepath.Join(t.o.Out, HistoryFolder))
}

// HistoryFolder is the name of the folder with the history, in the folder of the report.
const HistoryFolder = "history"

func (t *Trial) keepLogs() error {
	if t.dir == "" {
		return nil
	}
	return os.CopyFS(filepath.Join(t.o.Out, "logs"), os.DirFS(filepath.Join(t.dir, "logs")))
}

// Judge collects the final state of the service and checks all invariants.
func (t *Trial) Judge(ctx context.Context) (*judge.Verdict, error) {
	t.recorder.Stage("judge", nil)
	config, run := t.judgement()
	collected, err := collect.Run(ctx, config, run, t.facts)
	if err != nil {
		return nil, err
	}
	if err := t.facts.Close(); err != nil {
		return nil, fmt.Errorf("write the history: %w", err)
	}
	run.Collected = collected
	for source, why := range collected.Missing {
		t.note("the %s could not be read: %s", source, why)
	}
	return judge.Judge(ctx, t.facts, run)
}

// In a run without faults, a delivery attempt may be overdue by this long.
const overdue = 10 * time.Second

func (t *Trial) judgement() (collect.Config, judge.RunContext) {
	config := collect.Config{
		Accounts: t.engine.Accounts(), DatabaseURL: t.o.DatabaseURL, RedisURL: t.o.RedisURL,
		SampleReports: t.o.Sample, DeliveryLogs: t.expectsKinds(), Seed: t.o.Scenario.Seed,
	}
	if t.o.Key != "" {
		config.Since = t.engine.ClockMoves().At(t.began.Add(-time.Minute)) // the client of --key may have jobs of earlier runs
	}
	run := judge.RunContext{
		Run: t.id, Tickets: t.engine.Tickets(), TimeScale: t.o.TimeScale,
		Chaos: t.o.Scenario.Chaos != "", Moves: t.engine.ClockMoves(), Killed: t.disturbed.Load(),
		Streamed: t.o.Scenario.Readers.Streams > 0, Whole: t.drained,
	}
	if t.expectsKinds() && !run.Killed && !run.Chaos {
		run.DeliveryOverdue = overdue
	}
	for _, admin := range t.o.AdminURLs {
		config.MetricsURLs = append(config.MetricsURLs, strings.TrimRight(admin, "/")+"/metrics")
	}
	if t.stack != nil {
		config.MetricsURLs = append(config.MetricsURLs, t.stack.MetricsURLs()...)
		run.Counters = !run.Killed && t.o.URL == ""
	}
	if t.o.URL == "" { // the simulator has started the service, so it knows the settings
		env := t.o.Scenario.Service.Env
		run.MaxRuntime = setting(env, "FORGERUN_MAX_RUNTIME", time.ParseDuration, 2*time.Minute)
		run.KeyWindow = 24 * time.Hour
		run.MaxAttempts = 1 + setting(env, "FORGERUN_MAX_RETRIES", strconv.Atoi, 3)
		run.DeliveryTries = 1 + setting(env, "FORGERUN_WEBHOOK_MAX_RETRIES", strconv.Atoi, 8)
	}
	for _, a := range config.Accounts {
		run.Webhooks = append(run.Webhooks, a.Webhooks...)
	}
	return config, run
}

func setting[T any](env map[string]string, name string, parse func(string) (T, error), byDefault T) T {
	if v, err := parse(env[name]); err == nil {
		return v
	}
	return byDefault
}
