package repotest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Columns holds values of a table's columns as SQL expressions.
type Columns map[string]string

var plain = map[string]Columns{
	"jobs": {
		"job_id": "gen_random_uuid()", "client_id": "gen_random_uuid()", "type": "'EXECUTE'", "work_kind": "'SUCCESS_FAST'",
		"definition": `'{"work_kind": "SUCCESS_FAST", "duration_ms": 1000, "expected_outcome": "SUCCEEDED"}'`,
		"state":      "'QUEUED'", "max_attempts": "4", "auto_retry": "false", "event_seq": "2", "created_at": "now()", "updated_at": "now()",
		"run_at": "now()", "queued_at": "now()", "language": "'en'", "request_id": "'request-1'",
	},
	"deliveries": {
		"delivery_id": "gen_random_uuid()", "client_id": "gen_random_uuid()", "endpoint_id": "gen_random_uuid()", "job_id": "gen_random_uuid()",
		"seq": "1", "event_id": "gen_random_uuid()", "event_name": "'x'", "created_at": "now()", "next_attempt_at": "now()",
		"url": "'https://receiver.example'",
	},
	"events": {
		"job_id": "gen_random_uuid()", "client_id": "gen_random_uuid()", "seq": "1", "event_id": "gen_random_uuid()", "event_name": "'x'",
		"attempt": "1", "occurred_at": "now()", "data": "'{}'",
	},
	"client_events": {
		"client_id": "gen_random_uuid()", "event_id": "gen_random_uuid()", "event_name": "'x'", "occurred_at": "now()", "data": "'{}'",
	},
	"webhooks": {
		"webhook_id": "gen_random_uuid()", "client_id": "gen_random_uuid()", "url": "'u'", "events": "'{*}'", "description": "''",
		"content_mode": "'binary'", "secret": "'x'", "created_at": "now()", "updated_at": "now()",
	},
}

// Insert writes n rows into a table. The SQL expressions in `given` can use `i`, the number of the row, from 1.
func Insert(t testing.TB, url, table string, n int, given Columns) {
	t.Helper()
	all := maps.Clone(plain[table])
	if table == "deliveries" && given["webhook_id"] != "" {
		delete(all, "url") // a delivery has either a webhook or a URL
	}
	maps.Copy(all, given)
	names := slices.Sorted(maps.Keys(all))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = all[name]
	}
	Exec(t, url, `INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) SELECT `+strings.Join(values, ", ")+
		` FROM generate_series(1, $1::int) i`, n)
}

// Exec runs a statement on a database, bypassing the store.
func Exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	ctx, db, release := borrow(t, url)
	defer release()
	_, err := db.Exec(ctx, sql, args...)
	require.NoError(t, err)
}

// Begin runs a statement in a transaction, bypassing the store. `end` rolls the transaction back.
func Begin(t testing.TB, url, sql string) (end func()) {
	t.Helper()
	ctx, db := connect(t, url)
	_, err := db.Exec(ctx, "BEGIN; "+sql)
	require.NoError(t, err)
	return func() { _ = db.Close(ctx) }
}

// All reads the only column of all rows of a query, bypassing the store.
func All[T any](t testing.TB, url, sql string, args ...any) []T {
	t.Helper()
	ctx, db, release := borrow(t, url)
	defer release()
	rows, err := db.Query(ctx, sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return values
}

// Count counts rows; `what` is a table with an optional condition, such as "jobs WHERE state = 'QUEUED'".
func Count(t testing.TB, url, what string) int {
	t.Helper()
	return All[int](t, url, `SELECT count(*) FROM `+what)[0]
}

// Refuse makes statements such as "UPDATE ON outcome_outbox" fail until `accept` is called.
func Refuse(t testing.TB, url, what string) (accept func()) {
	t.Helper()
	Exec(t, url, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$refused by the test$$; END'`)
	Exec(t, url, `CREATE TRIGGER refused BEFORE `+what+` EXECUTE FUNCTION refuse()`)
	return func() {
		t.Helper()
		Exec(t, url, `DROP FUNCTION refuse CASCADE`)
	}
}

// idle maps each database made by the function URL to a channel with at most one unused connection. Reusing a connection is ten times
// faster than connecting, because the connection has cached plans and tables.
var idle sync.Map

func borrow(t testing.TB, url string) (ctx context.Context, db *pgx.Conn, release func()) {
	t.Helper()
	of, ok := idle.Load(url)
	if !ok {
		ctx, db = connect(t, url)
		return ctx, db, func() { _ = db.Close(ctx) }
	}
	unused := of.(chan *pgx.Conn)
	select {
	case db = <-unused:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), setupTimeout)
		t.Cleanup(cancel)
		if db.Ping(ctx) != nil { // a test has ended the connection
			_, db = connect(t, url)
		}
	default:
		ctx, db = connect(t, url)
	}
	return ctx, db, func() {
		select {
		case unused <- db:
		default:
			_ = db.Close(ctx)
		}
	}
}

func forget(ctx context.Context, url string) {
	of, _ := idle.LoadAndDelete(url)
	select {
	case db := <-of.(chan *pgx.Conn):
		_ = db.Close(ctx)
	default:
	}
}

func connect(t testing.TB, url string) (context.Context, *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	t.Cleanup(cancel)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec // no cached plans, because tests change tables between statements
	db, err := pgx.ConnectConfig(ctx, cfg)
	require.NoError(t, err)
	return ctx, db
}
