package pg

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/job"
)

// Query runs a statement and collects its rows with the function `scan`.
func Query[T any](ctx context.Context, d *DB, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return QueryAs(ctx, d, "read", scan, sql, args...)
}

// QueryAs is like Query, but counts errors under the name of the operation.
func QueryAs[T any](ctx context.Context, d *DB, operation string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var all []T
	err := d.sendTo(ctx, operation, sql, func(ctx context.Context, db Conn) (err error) {
		all, err = RowsIn(ctx, db, scan, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// RowsIn returns the rows of a statement in a transaction or the pool.
func RowsIn[T any](ctx context.Context, db Conn, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error of the query
	return pgx.CollectRows(rows, scan)
}

// sendTo calls `send` with the pool, or with the shared transaction (see Share). If the context has an API key, a write gets its own
// transaction, because InTx checks the key before the commit.
func (d *DB) sendTo(ctx context.Context, operation, sql string, send func(context.Context, Conn) error) error {
	if job.KeyOf(ctx) != "" && sharedTxOf(ctx) == nil && writes(sql) {
		return d.InTx(ctx, operation, func(ctx context.Context, tx pgx.Tx) error { return send(ctx, tx) })
	}
	ctx, cancel := d.Bound(ctx)
	defer cancel()
	if err := send(ctx, d.Conn(ctx)); err != nil {
		return d.Failed(operation, err)
	}
	return nil
}

func writes(sql string) bool {
	return strings.Contains(sql, "INSERT INTO ") || strings.Contains(sql, "UPDATE ") || strings.Contains(sql, "DELETE FROM ")
}

// First returns the first row, or false if there is none.
func First[T any](rows []T, err error) (row T, found bool, _ error) {
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}

// QueryFirst returns the first row of a statement. `found` is false if there is none.
func QueryFirst[T any](ctx context.Context, d *DB, scan pgx.RowToFunc[T], sql string, args ...any) (row T, found bool, err error) {
	return First(Query(ctx, d, scan, sql, args...))
}

// QueryOne returns the first row of a statement. If there is none, it returns the error `missing`, which may be nil.
func QueryOne[T any](ctx context.Context, d *DB, missing error, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	row, found, err := QueryFirst(ctx, d, scan, sql, args...)
	if err == nil && !found {
		err = missing
	}
	return row, err
}

// QueryValue reads a row of one value. It returns the zero value if there is no row.
func QueryValue[T any](ctx context.Context, d *DB, sql string, args ...any) (T, error) {
	return QueryOne(ctx, d, nil, pgx.RowTo[T], sql, args...)
}

// CollectByID collects rows that begin with an id. The function `columns` returns the destinations of the other columns.
func CollectByID[T any](rows pgx.Rows, err error, columns func(*T) []any) (map[job.ID]T, error) {
	if err != nil {
		return nil, err
	}
	var id job.ID
	var value T
	found := map[job.ID]T{}
	_, err = pgx.ForEachRow(rows, append([]any{&id}, columns(&value)...), func() error {
		found[id] = value
		value = *new(T)
		return nil
	})
	return found, err
}

// QueryByID runs a statement and collects its rows like CollectByID.
func QueryByID[T any](ctx context.Context, d *DB, columns func(*T) []any, sql string, args ...any) (map[job.ID]T, error) {
	ctx, cancel := d.Bound(ctx)
	defer cancel()
	rows, err := d.Conn(ctx).Query(ctx, sql, args...)
	found, err := CollectByID(rows, err, columns)
	if err != nil {
		return nil, d.Failed("read", err)
	}
	return found, nil
}

// Change runs a statement and returns the number of changed rows.
func (d *DB) Change(ctx context.Context, operation, sql string, args ...any) (int, error) {
	var n int64
	err := d.sendTo(ctx, operation, sql, func(ctx context.Context, db Conn) error {
		tag, err := db.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

// InTx runs a function in the shared transaction (see Share) or in a new one. It commits a new transaction with Commit, which checks the
// API key of the context.
func (d *DB) InTx(ctx context.Context, operation string, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := d.Bound(ctx)
	defer cancel()
	if tx := sharedTxOf(ctx); tx != nil {
		if err := do(ctx, tx); err != nil {
			return d.Failed(operation, err)
		}
		return nil
	}
	tx, err := d.Pool.Begin(ctx)
	if err != nil {
		return d.Failed(operation, err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := do(ctx, tx); err != nil {
		return d.Failed(operation, err)
	}
	return d.Commit(ctx, tx, operation)
}

// Commit checks the API key of the context (see requireKeyIn), then commits. If Commit does not know whether the server committed, it
// returns errUnknown.
func (d *DB) Commit(ctx context.Context, tx pgx.Tx, operation string) error {
	if err := requireKeyIn(ctx, tx); err != nil {
		return d.Failed(operation, err)
	}
	err := tx.Commit(ctx)
	if err == nil {
		return nil
	}
	known := d.Failed(operation, err)
	var refused *pgconn.PgError
	if errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) ||
		errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" {
		return known
	}
	return errUnknown(err)
}

// Exec runs a statement and ignores its result.
func (d *DB) Exec(ctx context.Context, operation, sql string, args ...any) error {
	_, err := d.Change(ctx, operation, sql, args...)
	return err
}
