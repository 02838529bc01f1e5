package repo

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/pressly/goose/v3"
)

// labelsSince is the first version of the schema that has labels in all its tables.
const labelsSince = 2

// relabelEvents mends a database that was restored from a dump into another
// server. Transactions are numbered anew there, so the labels of old events can
// lie ahead: ClientEvents would not show such events for a long time, and new
// ones not before them. It gives all old events one label that precedes every
// transaction. A job's events keep their order, which among equal labels is
// that of their seq. Positions that clients have kept would leave events out once
// the server's transactions have come to them: with the key that signed them
// gone, they are refused for good, and so are cursors of lists and of replays.
func relabelEvents(ctx context.Context, db *sql.DB, provider *goose.Provider) error {
	version, err := provider.GetDBVersion(ctx)
	if err != nil || version < labelsSince {
		return err
	}
	if ahead, err := labelsAhead(ctx, db); err != nil || !ahead {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// Every writer of an event writes one of these tables too.
	if _, err := tx.ExecContext(ctx, `LOCK TABLE jobs, client_events IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	if ahead, err := labelsAhead(ctx, tx); err != nil || !ahead { // another process was first
		return err
	}
	for _, sql := range []string{
		`UPDATE events SET tx = '1' WHERE tx <> '1'`,
		`UPDATE client_events SET tx = '1' WHERE tx <> '1'`,
		`UPDATE jobs SET event_tx = '1' WHERE event_tx <> '1'`,
		`UPDATE maintenance_state SET cursor_key = DEFAULT`,
	} {
		if _, err := tx.ExecContext(ctx, sql); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	slog.Warn("the database comes from another server: the events' places in the streams of clients were set anew, and places that clients have kept are not valid any more")
	return nil
}

// labelsAhead reports whether an event has a label that no transaction of this
// server can have given. It goes from client to client in the indexes
// events_client and client_events_client and looks at the latest label of each:
// with millions of jobs, all their rows are not read for this.
func labelsAhead(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (ahead bool, err error) {
	return ahead, db.QueryRowContext(ctx, anyLabelAhead).Scan(&ahead)
}

const anyLabelAhead = `
WITH RECURSIVE told AS (
  (SELECT client_id, tx FROM events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM told CROSS JOIN LATERAL (
    SELECT client_id, tx FROM events WHERE client_id < told.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
), others AS (
  (SELECT client_id, tx FROM client_events ORDER BY client_id DESC, tx DESC LIMIT 1)
  UNION ALL
  SELECT e.* FROM others CROSS JOIN LATERAL (
    SELECT client_id, tx FROM client_events WHERE client_id < others.client_id ORDER BY client_id DESC, tx DESC LIMIT 1) e
)
SELECT EXISTS (SELECT FROM told WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))
  OR EXISTS (SELECT FROM others WHERE tx >= pg_snapshot_xmax(pg_current_snapshot()))`
