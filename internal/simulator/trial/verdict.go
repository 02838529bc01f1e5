package trial

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
)

// sources are lists, reports, rows, queue and metrics. The history is read after all of them.
const sources = 5

// Judge collects the final state of the service, and checks everything.
func (t *Trial) Judge(ctx context.Context) (*judge.Verdict, error) {
	t.recorder.Stage("judge", func() float64 { return float64(t.asked.Load()) / sources })
	config, run := t.judgement()
	collected, err := collect.Run(ctx, config, t.facts)
	if err != nil {
		return nil, err
	}
	if err := t.facts.Close(); err != nil {
		return nil, fmt.Errorf("the history could not be written: %w", err)
	}
	run.Collected = collected
	for source, why := range collected.Missing {
		t.note("the %s could not be read: %s", source, why)
	}
	return judge.Judge(ctx, t.facts, run)
}

// overdue is the allowed delay of a delivery attempt without faults.
const overdue = 10 * time.Second

// judgement returns the judge's sources, and its knowledge of the run.
func (t *Trial) judgement() (collect.Config, judge.RunContext) {
	config := collect.Config{
		Run: t.id, Tickets: t.engine.Tickets(), DatabaseURL: t.o.DatabaseURL, RedisURL: t.o.RedisURL,
		SampleReports: t.o.Sample, DeliveryLogs: t.expectsKinds(), Seed: t.o.Scenario.Seed,
		Stage: func(judge.Source) { t.asked.Add(1) },
	}
	if t.o.Key != "" {
		config.Since = t.engine.ClockMoves().At(t.began.Add(-time.Minute)) // that client may have earlier jobs
	}
	run := judge.RunContext{
		Run: t.id, Tickets: t.engine.Tickets(), TimeScale: t.o.TimeScale,
		Chaos: t.o.Scenario.Chaos != "", Moves: t.engine.ClockMoves(), Killed: t.disturbed.Load(),
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
		config.Counters = run.Counters
	}
	if t.o.URL == "" { // with our configuration
		env := t.o.Scenario.Service.Env
		run.MaxRuntime = setting(env, "FORGERUN_MAX_RUNTIME", time.ParseDuration, 2*time.Minute)
		run.KeyWindow = 24 * time.Hour
		run.MaxAttempts = 1 + setting(env, "FORGERUN_MAX_RETRIES", strconv.Atoi, 3)
		run.DeliveryTries = 1 + setting(env, "FORGERUN_WEBHOOK_MAX_RETRIES", strconv.Atoi, 8)
	}
	for _, a := range t.engine.Accounts() {
		config.Accounts = append(config.Accounts, a)
		run.Webhooks = append(run.Webhooks, a.Webhooks...)
		if t.o.Scenario.Readers.Streams > 0 {
			run.Streams = append(run.Streams, judge.Stream{Tenant: a.Tenant, Whole: t.drained})
		}
	}
	return config, run
}

// setting returns a setting of our own service, or its default.
func setting[T any](env map[string]string, name string, parse func(string) (T, error), byDefault T) T {
	if v, err := parse(env[name]); err == nil {
		return v
	}
	return byDefault
}
