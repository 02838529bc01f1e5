package trial

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testkit.RemovePrograms()
	os.Exit(code)
}

const playedScenario = `
seed: 7
jobs: 90
tenants: 1
drain: 60s
arrival: {open: [{rate: 30/s}]}
mix:
  - {kind: SUCCESS_FAST, weight: 3, params_bytes: 100}
  - {kind: PAYLOAD_SMALL, weight: 2}
  - {kind: FAIL_IMMEDIATE, weight: 2}
  - {kind: RETRY_ON_FAIL, auto_retry: true, weight: 2}
  - {kind: RETRY_LIMIT_REACHED, retry: {max: 5}, weight: 1}
  - {kind: CANCEL_DURING_RUN, cancel: {in: RUNNING, after: 0s..50ms}, weight: 1}
  - {kind: DUPLICATE_SUBMIT_SAME_KEY, duplicate: {copies: 2, at_once: true}, weight: 2}
  - {kind: SCHEDULED_ON_TIME, type: DEFERRED, ahead: 1s..2s, weight: 2}
  - {kind: WEBHOOK_SUCCESS, callback: called, weight: 2}
  - {kinds: [SUCCESS_FAST, FAIL_IMMEDIATE], batch: 5, weight: 2}
  - {type: EMIT_EVENT, weight: 1}
receivers:
  - {name: all, events: [job.succeeded, job.failed, job.canceled, batch.completed], answers: [{status: 503, share: 20%}]}
  - {name: called, callback: true}
service:
  workers: 1
  time_scale: 0.01
  env:
    FORGERUN_RETRY_BACKOFF_BASE: 50ms
    FORGERUN_RETRY_BACKOFF_MAX: 200ms
    FORGERUN_WEBHOOK_BACKOFF_BASE: 50ms
    FORGERUN_WEBHOOK_BACKOFF_MAX: 500ms
`

type played struct {
	t      *testing.T
	trial  *Trial
	db     *pgx.Conn
	config collect.Config
	run    judge.RunContext
	facts  []history.Fact
}

func prepared(t *testing.T, text string, o Options) *Trial {
	t.Helper()
	var err error
	o.Scenario, err = scenario.Parse("test.yaml", []byte(text))
	require.NoError(t, err)
	o.Binary, o.Lease, o.Sample, o.ReceiverAddr = testkit.Program(t, "forgerun"), 3*time.Second, 2000, "127.0.0.1:0"
	o.Out, o.Stdout, o.Stderr = filepath.Join(t.TempDir(), "out"), io.Discard, io.Discard
	trial := New(o)
	t.Cleanup(func() {
		require.NoError(t, trial.Close())
		require.NoError(t, os.RemoveAll(trial.dir))
	})
	require.NoError(t, trial.Prepare(t.Context()))
	return trial
}

func play(t *testing.T) *played {
	t.Helper()
	trial := prepared(t, playedScenario, Options{})
	require.NoError(t, trial.Drive(t.Context()))
	p := &played{t: t, trial: trial}
	p.config, p.run = trial.judgement()
	var err error
	p.db, err = pgx.Connect(t.Context(), trial.o.DatabaseURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close(context.Background()) })

	require.NoError(t, trial.facts.Close())
	for bucket := range history.Buckets + 1 {
		require.NoError(t, trial.facts.Each(bucket, func(f history.Fact) error { p.facts = append(p.facts, f); return nil }))
	}
	return p
}

func (p *played) exec(sql string, arguments ...any) {
	p.t.Helper()
	_, err := p.db.Exec(p.t.Context(), sql, arguments...)
	require.NoError(p.t, err, sql)
}

func (p *played) judge() (collected judge.Collected, verdict *judge.Verdict) {
	p.t.Helper()
	dir := p.t.TempDir()
	facts, err := history.Create(dir)
	require.NoError(p.t, err)
	for _, f := range p.facts {
		facts.Add(f)
	}
	run := p.run
	run.Collected, err = collect.Run(p.t.Context(), p.config, p.run, facts)
	require.NoError(p.t, err)
	require.NoError(p.t, facts.Close())
	verdict, err = judge.Judge(p.t.Context(), facts, run)
	require.NoError(p.t, err)
	require.NoError(p.t, os.RemoveAll(dir))
	return run.Collected, verdict
}
