//go:build slow && linux

package trial

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// blockLeaders prevents every process from becoming the leader.
func (p *played) blockLeaders() {
	p.exec(`UPDATE maintenance_state SET leader_id = gen_random_uuid(), leader_expires_at = clock_timestamp() + interval '30 s'`)
}

// violated returns the names of the violated invariants.
func (p *played) violated() (violated []string) {
	p.t.Helper()
	collected, verdict := p.judge()
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

// changes returns SQL expressions that change a value of a column type, in the order in which they are tried.
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

// change sets a column of one row to another value and returns an undo function. done is false if the table accepts no other value.
func (p *played) change(table, column, kind string, skip int) (undo func(), done bool) {
	p.t.Helper()
	ctx := p.t.Context()
	var key, before string
	name := pgx.Identifier{column}.Sanitize()
	// Each update changes the ctid of the row, so the last one is kept.
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
			continue // a constraint refuses it, or the value stays the same
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

// TestFaultColumns changes every column of every table in a few rows. The judge must report each change, except for unseenColumns.
func TestFaultColumns(t *testing.T) {
	p := play(t)
	// Without workers, the rows change only here. The queue and the metrics are not read again for each change.
	require.NoError(t, p.trial.stack.Scale(t.Context(), 0))
	p.config.RedisURL, p.config.MetricsURLs, p.config.MaxWait = "", nil, time.Second
	p.blockLeaders()
	time.Sleep(6 * time.Second) // until the leader has stopped
	require.Empty(t, p.violated(), "no violation before the first change")
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
		if slices.Contains(emptyTables, c.Table) {
			var rows int
			require.NoError(t, p.db.QueryRow(t.Context(), `SELECT count(*) FROM `+c.Table).Scan(&rows))
			require.Zero(t, rows, "%s is not empty: its columns can be changed", c.Table)
			continue
		}
		if excused[full] {
			delete(excused, full)
			continue
		}
		violated := p.damage(c.Table, c.Name, c.Type)
		t.Logf("%s: %s", full, strings.Join(violated, ", "))
		require.NotEmpty(t, violated, "the judge did not report the change of %s: add a rule, or a reason to unseenColumns", full)
	}
	require.Empty(t, excused, "unseenColumns names columns that do not exist")
	p.exec(`RESET session_replication_role`)
	require.Empty(t, p.violated(), "all changes were undone")
}

// damage changes a column in one row, and then in others until the judge reports it.
func (p *played) damage(table, column, kind string) (violated []string) {
	p.t.Helper()
	for _, skip := range []int{0, 1, 2, 3, 5, 8, 13, 21} {
		p.blockLeaders()
		undo, done := p.change(table, column, kind, skip)
		if !done {
			continue
		}
		violated = p.violated()
		undo()
		if len(violated) > 0 {
			break
		}
	}
	return violated
}
