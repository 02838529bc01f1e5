package repo

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	guid "github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// queryRows runs a statement and collects its rows with scan.
func queryRows[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return queryRowsAs(ctx, s, "read", scan, sql, args...)
}

// queryRowsAs is queryRows for an operation whose errors are counted on their own.
func queryRowsAs[T any](ctx context.Context, s *Store, operation string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var all []T
	err := s.on(ctx, operation, sql, func(ctx context.Context, db conn) (err error) {
		all, err = rowsIn(ctx, db, scan, sql, args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// rowsIn gives the rows of a statement that is sent to a transaction, or to the pool.
func rowsIn[T any](ctx context.Context, db conn, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns its error
	return pgx.CollectRows(rows, scan)
}

// on has a statement sent to the pool or to the transaction of Once; or, if it writes in the name of an API key, to a transaction
// of its own that requires the key.
func (s *Store) on(ctx context.Context, operation, sql string, send func(context.Context, conn) error) error {
	if job.KeyOf(ctx) != "" && onceTx(ctx) == nil && writes(sql) {
		return s.inTx(ctx, operation, func(ctx context.Context, tx pgx.Tx) error { return send(ctx, tx) })
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := send(ctx, s.db(ctx)); err != nil {
		return s.failed(operation, err)
	}
	return nil
}

// writes reports whether a statement may write.
func writes(sql string) bool {
	return strings.Contains(sql, "INSERT INTO ") || strings.Contains(sql, "UPDATE ") || strings.Contains(sql, "DELETE FROM ")
}

// first gives the first of the rows; false if there is none.
func first[T any](rows []T, err error) (row T, found bool, _ error) {
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}

// queryFirst gives the first row of a statement; found is false if it has none.
func queryFirst[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) (row T, found bool, err error) {
	return first(queryRows(ctx, s, scan, sql, args...))
}

// queryOne gives the first row of a statement; the error missing, if it is not nil, if there is none.
func queryOne[T any](ctx context.Context, s *Store, missing error, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	row, found, err := queryFirst(ctx, s, scan, sql, args...)
	if err == nil && !found {
		err = missing
	}
	return row, err
}

// queryValue reads a row of one value; the zero value if there is none.
func queryValue[T any](ctx context.Context, s *Store, sql string, args ...any) (T, error) {
	return queryOne(ctx, s, nil, pgx.RowTo[T], sql, args...)
}

// queryPage gives the rows of a statement that was asked for one more than limit, without that one, and where the next page
// goes on: behind the last id, or the zero id at the end.
func queryPage[T any](
	ctx context.Context, s *Store, limit int, id func(T) job.ID, scan pgx.RowToFunc[T], sql string, args ...any,
) (page []T, next job.ID, err error) {
	page, err = queryRows(ctx, s, scan, sql, args...)
	if len(page) > limit {
		page = page[:limit]
		next = id(page[limit-1])
	}
	return page, next, err
}

// collectByID collects rows that begin with an id. columns gives what the
// others are scanned into.
func collectByID[T any](rows pgx.Rows, err error, columns func(*T) []any) (map[job.ID]T, error) {
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

// queryByID runs a statement and collects its rows as collectByID does.
func queryByID[T any](ctx context.Context, s *Store, columns func(*T) []any, sql string, args ...any) (map[job.ID]T, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := s.db(ctx).Query(ctx, sql, args...)
	found, err := collectByID(rows, err, columns)
	if err != nil {
		return nil, s.failed("read", err)
	}
	return found, nil
}

// change runs a statement and gives the number of rows that it changed.
func (s *Store) change(ctx context.Context, operation, sql string, args ...any) (int, error) {
	var n int64
	err := s.on(ctx, operation, sql, func(ctx context.Context, db conn) error {
		tag, err := db.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

// inTx runs a function in a transaction: that of Once, or one of its own, which requires the API key of the context.
func (s *Store) inTx(ctx context.Context, operation string, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if tx := onceTx(ctx); tx != nil {
		if err := do(ctx, tx); err != nil {
			return s.failed(operation, err)
		}
		return nil
	}
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return s.failed(operation, err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	if err = do(ctx, tx); err == nil {
		err = requireKeyIn(ctx, tx)
	}
	if err != nil {
		return s.failed(operation, err)
	}
	return s.commit(ctx, tx, operation)
}

// commit ends a transaction. Unless the server itself refused, or was never
// asked, a failed commit may have taken effect all the same.
func (s *Store) commit(ctx context.Context, tx pgx.Tx, operation string) error {
	err := tx.Commit(ctx)
	if err == nil {
		return nil
	}
	known := s.failed(operation, err)
	var refused *pgconn.PgError
	if errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) ||
		errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" {
		return known
	}
	return errUnknown(err)
}

// exec runs a statement without an answer.
func (s *Store) exec(ctx context.Context, operation, sql string, args ...any) error {
	_, err := s.change(ctx, operation, sql, args...)
	return err
}

// uuid passes an ID to Postgres; the zero ID is NULL.
func uuid(id job.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

// idScanner reads a uuid column into an ID; NULL is the zero ID.
type idScanner job.ID

func (s *idScanner) ScanUUID(v pgtype.UUID) error {
	*s = idScanner(v.Bytes)
	return nil
}

// idPlan has a connection read IDs as an idScanner does.
type idPlan struct{ next pgtype.ScanPlan }

func (p *idPlan) SetNext(next pgtype.ScanPlan) { p.next = next }

func (p *idPlan) Scan(src []byte, id any) error { return p.next.Scan(src, (*idScanner)(id.(*job.ID))) }

func planID(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
	id, ok := target.(*job.ID)
	return &idPlan{}, (*idScanner)(id), ok
}

// scanRow reads a row into targets that have the zero value, which NULL leaves as they are.
func scanRow(row pgx.CollectableRow, targets ...any) error {
	for i, value := range row.RawValues() {
		if value == nil {
			targets[i] = nil
		}
	}
	return row.Scan(targets...)
}

// rowToID reads a row that is an id.
func rowToID(row pgx.CollectableRow) (id job.ID, err error) { return id, row.Scan(&id) }

// keyOf is an id as a key of a batcher.
func keyOf(id job.ID) string { return string(id[:]) }

// byID gives values by their ids.
func byID[T any](all []T, id func(T) job.ID) map[job.ID]T {
	found := make(map[job.ID]T, len(all))
	for _, v := range all {
		found[id(v)] = v
	}
	return found
}

// eventIDs makes the ids of that many events. Postgres could do it too, for
// several times the cost.
func eventIDs(n int) []pgtype.UUID {
	ids := make([]pgtype.UUID, n)
	for i := range ids {
		ids[i] = pgtype.UUID{Bytes: guid.Must(guid.NewV7()), Valid: true}
	}
	return ids
}

// column turns one member of each item into an array argument for unnest.
func column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// jsonColumn is column for jsonb: it encodes one member of each item, or passes NULL if an item has none.
func jsonColumn[T, V any](items []T, value func(T) (v V, ok bool)) ([][]byte, error) {
	encoded := make([][]byte, len(items))
	for i, item := range items {
		v, ok := value(item)
		if !ok {
			continue
		}
		var err error
		if encoded[i], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// nullable is NULL for the zero value.
func nullable[V comparable](v V) *V {
	if v == *new(V) {
		return nil
	}
	return &v
}

// deref gives the zero value for NULL.
func deref[V any](p *V) V {
	if p == nil {
		return *new(V)
	}
	return *p
}
