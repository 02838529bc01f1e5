//go:build faults && linux

package trial

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// columnsScenario has jobs of every end, and what belongs to them.
const columnsScenario = `
seed: 7
jobs: 60
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
  - {kind: SCHEDULED_ON_TIME, type: DEFERRED, ahead: 1s..3s, weight: 2}
  - {kind: WEBHOOK_SUCCESS, callback: called, weight: 2}
  - {kinds: [SUCCESS_FAST, FAIL_IMMEDIATE], batch: 5, weight: 2}
  - {type: EMIT_EVENT, weight: 1}
receivers:
  - {name: all, events: [job.succeeded, job.failed, job.canceled, batch.completed], answers: [{status: 503, share: 20%}]}
  - {name: called, callback: true}
service:
  workers: 1
  time_scale: 0.01
  env: {FORGERUN_RETRY_BACKOFF_BASE: 50ms, FORGERUN_RETRY_BACKOFF_MAX: 200ms}
`

// played is a trial that has been driven, with all that the judge needs to judge again.
type played struct {
	t      *testing.T
	db     *pgx.Conn
	config collect.Config
	run    judge.RunContext
	facts  judge.FactList // of the load
}

// Add takes what is collected.
type factSink struct{ list *judge.FactList }

func (s factSink) Add(f history.Fact) { *s.list = append(*s.list, f) }

func play(t *testing.T) *played {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "forgerun")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../../cmd/forgerun").CombinedOutput()
	require.NoError(t, err, string(output))
	s, err := scenario.Parse("columns.yaml", []byte(columnsScenario))
	require.NoError(t, err)
	trial := New(Options{Scenario: s, Text: columnsScenario, Binary: binary, Lease: 3 * time.Second, ReceiverAddr: "127.0.0.1:0",
		Sample: 2000, Out: filepath.Join(dir, "out"), Stdout: io.Discard, Stderr: io.Discard})
	t.Cleanup(func() { require.NoError(t, trial.Close()); _ = os.RemoveAll(trial.Dir()) })
	require.NoError(t, trial.Prepare(t.Context()))
	require.NoError(t, trial.Drive(t.Context()))
	p := &played{t: t}
	p.config, p.run = trial.judgement()
	p.config.RedisURL, p.config.MetricsURLs, p.config.MaxWait = "", nil, time.Second // judged once, below
	p.db, err = pgx.Connect(t.Context(), trial.DatabaseURL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close(context.Background()) })

	require.NoError(t, trial.facts.Close())
	written, err := history.Open(filepath.Join(trial.o.Out, historyFolder))
	require.NoError(t, err)
	for bucket := range history.Buckets + 1 {
		require.NoError(t, written.Each(bucket, func(f history.Fact) error { p.facts = append(p.facts, f); return nil }))
	}
	// Nobody works from here on: a row that is changed stays as it is.
	require.NoError(t, trial.stack.Scale(t.Context(), 0))
	return p
}

// lead keeps every process from leading.
func (p *played) lead() {
	p.exec(`UPDATE maintenance_state SET leader_id = gen_random_uuid(), leader_expires_at = clock_timestamp() + interval '30 s'`)
}

func (p *played) exec(sql string, arguments ...any) {
	p.t.Helper()
	_, err := p.db.Exec(p.t.Context(), sql, arguments...)
	require.NoError(p.t, err, sql)
}

// judge gives the invariants that do not hold.
func (p *played) judge() (violated []string) {
	p.t.Helper()
	facts := slices.Clone(p.facts)
	run := p.run
	collected, err := collect.Run(p.t.Context(), p.config, factSink{&facts})
	require.NoError(p.t, err)
	run.Collected = collected
	verdict, err := judge.Judge(p.t.Context(), facts, run)
	require.NoError(p.t, err)
	for _, v := range verdict.Violations {
		if !slices.Contains(violated, v.Invariant) {
			violated = append(violated, v.Invariant)
		}
	}
	for source := range collected.Missing {
		violated = append(violated, "unreadable "+string(source))
	}
	return violated
}

// changes are other values for one of a type, in the order in which they are tried.
func changes(kind string) []string {
	return map[string][]string{
		"text": {`%[1]s || 'x'`, `'x'`, `'FAILED'`, `'SUCCEEDED'`,
			`'FAILURE'`, `'SUCCESS'`, `'DELIVERED'`, `'DEFERRED'`, `'read'`, `'binary'`},
		"integer":  {`%[1]s + 1000`, `%[1]s + 1`, `%[1]s - 1`},
		"smallint": {`%[1]s + 1000`, `%[1]s + 1`, `%[1]s - 1`},
		"bigint":   {`%[1]s + 1000`, `%[1]s + 1`, `%[1]s - 1`},
		"boolean":  {`NOT %[1]s`},
		"uuid":     {`gen_random_uuid()`},
		"bytea":    {`sha256(%[1]s)`},
		"jsonb": {
			`jsonb_set(%[1]s, ARRAY[(SELECT min(k) FROM jsonb_object_keys(%[1]s) AS k)], '"changed"')`, `%[1]s - 0`, `'{"other": 1}'`,
		},
		"json":                     {`'{"other": 1}'`},
		"xid8":                     {`(%[1]s::text::bigint + 1)::text::xid8`, `'1'`},
		"timestamp with time zone": {`%[1]s + interval '1 h'`, `%[1]s - interval '1 h'`},
		"ARRAY":                    {`array_append(%[1]s, 'job.retried')`},
	}[kind]
}

// change gives a column of one row another value, and gives the way back; "" if no value is allowed.
func (p *played) change(table, column, kind string, skip int) (undo func(), done bool) {
	p.t.Helper()
	ctx := p.t.Context()
	var key, before string
	name := pgx.Identifier{column}.Sanitize()
	// ctid changes with each update; xmin too: the row is found again by what it is.
	err := p.db.QueryRow(ctx, fmt.Sprintf(`SELECT ctid::text, %[2]s::text FROM %[1]s WHERE %[2]s IS NOT NULL ORDER BY ctid OFFSET $1 LIMIT 1`,
		table, name), skip).Scan(&key, &before)
	if err != nil {
		return nil, false
	}
	for _, value := range changes(kind) {
		var now string
		err := p.db.QueryRow(ctx, fmt.Sprintf(`UPDATE %s SET %s = %s WHERE ctid = $1::tid AND (%s)::text IS DISTINCT FROM $2
				RETURNING ctid::text`,
			table, name, strings.ReplaceAll(value, "%[1]s", name), strings.ReplaceAll(value, "%[1]s", name)), key, before).Scan(&now)
		if err != nil {
			continue // not allowed, or the same
		}
		var cast string
		require.NoError(p.t, p.db.QueryRow(ctx, `SELECT format_type(atttypid, atttypmod) FROM pg_attribute
			WHERE attrelid = $1::regclass AND attname = $2`, table, column).Scan(&cast))
		return func() {
			p.exec(fmt.Sprintf(`UPDATE %s SET %s = $2::text::%s WHERE ctid = $1::tid`, table, name, cast), now, before)
		}, true
	}
	return nil, false
}

// TestFaultColumns changes every column of every table, in a few rows, and wants the judge to see it, but for those
// that it cannot see: the page says why.
func TestFaultColumns(t *testing.T) {
	p := play(t)
	p.lead()
	time.Sleep(6 * time.Second) // who leads finds out
	require.Empty(t, p.judge(), "nothing is wrong yet")
	p.exec(`SET session_replication_role = replica`) // no triggers, no foreign keys
	rows, err := p.db.Query(t.Context(), `SELECT table_name, column_name, data_type FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name IN (SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE')
		ORDER BY table_name, ordinal_position`)
	require.NoError(t, err)
	type column struct{ Table, Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(t, err)
	excused := map[string]bool{}
	for _, u := range unseenColumns {
		for _, c := range u.columns {
			excused[c] = true
		}
	}
	for _, c := range columns {
		full := c.Table + "." + c.Name
		if excused[full] {
			delete(excused, full)
			continue
		}
		violated := p.damage(c.Table, c.Name, c.Type)
		t.Logf("%s: %s", full, strings.Join(violated, ", "))
		require.NotEmpty(t, violated, "%s was changed, and nobody noticed: add a rule, or the reason to unseenColumns", full)
	}
	require.Empty(t, excused, "there are no such columns")
	p.exec(`RESET session_replication_role`)
	require.Empty(t, p.judge(), "everything was undone")
}

// damage changes a column in one row, and in others until that is noticed.
func (p *played) damage(table, column, kind string) (violated []string) {
	p.t.Helper()
	for _, skip := range []int{0, 1, 2, 3, 5, 8, 13, 21} {
		p.lead()
		undo, done := p.change(table, column, kind, skip)
		if !done {
			continue
		}
		violated = p.judge()
		undo()
		if len(violated) > 0 {
			break
		}
	}
	return violated
}
