package repo

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	lockErasedClient = statement("lockErasedClient")
	erasureOfClient  = statement("erasureOfClient")
	insertErasure    = statement("insertErasure")
	revokeErasedKeys = statement("revokeErasedKeys")
	readErasure      = statement("readErasure")
	listErasures     = statement("listErasures")
	openErasures     = statement("openErasures")
)

// maxOpenErasures is how many erasures are looked at in one round. The others have their
// turn when those are done.
const maxOpenErasures = 100

// errErased is what a row of a client that is erased is refused with.
var errErased = job.Errorf(job.CodeClientNotFound, "No client with this id was found.")

// erasureColumns is the one column list of an erasure, read by scanErasure.
const erasureColumns = `erasure_id, client_id, operator, reason, request_id, created_at, started_at, finished_at, step, position,
  position_job, removed, remaining, coalesce(record, ''), record_sha256`

func scanErasure(row pgx.CollectableRow) (*job.Erasure, error) {
	var e job.Erasure
	var removed, remaining []byte
	err := row.Scan(scanID(&e.ID), scanID(&e.ClientID), &e.Operator, &e.Reason, &e.RequestID, &e.CreatedAt, &e.StartedAt, &e.FinishedAt,
		&e.Step, scanID(&e.Position), scanID(&e.PositionJob), &removed, &remaining, &e.Record, &e.SHA256)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(removed, &e.Removed); err != nil {
		return nil, err
	}
	return &e, json.Unmarshal(remaining, &e.Remaining)
}

// BeginErasure stores the erasure of a client, and gives it. From the commit on the
// client's keys are revoked, in all processes, and nothing new is stored for it. The
// erasure of a client that is being erased is given as it is; a client that was erased,
// like one that never was, is not found.
func (s *Store) BeginErasure(ctx context.Context, id job.ID, r job.ErasureRequest) (e *job.Erasure, begun bool, err error) {
	err = s.inTx(ctx, "erase", func(ctx context.Context, tx pgx.Tx) error {
		e, begun, err = beginErasure(ctx, tx, id, r)
		return err
	})
	return e, begun, err
}

func beginErasure(ctx context.Context, tx pgx.Tx, id job.ID, r job.ErasureRequest) (*job.Erasure, bool, error) {
	known, err := rowsIn(ctx, tx, rowToID, lockErasedClient, uuid(r.ClientID))
	if err != nil {
		return nil, false, err
	}
	// A statement of its own sees what the one above waited for.
	found, err := rowsIn(ctx, tx, scanErasure, erasureOfClient, uuid(r.ClientID))
	if err != nil {
		return nil, false, err
	}
	if len(found) > 0 && found[0].FinishedAt == nil {
		return found[0], false, nil
	}
	if len(found) > 0 || len(known) == 0 {
		return nil, false, errErased
	}
	added, err := rowsIn(ctx, tx, scanErasure, insertErasure, uuid(id), uuid(r.ClientID), r.Operator, r.Reason, r.RequestID)
	if err != nil {
		return nil, false, err
	}
	if len(added) == 0 { // only another way than this one could have
		return nil, false, errErased
	}
	return added[0], true, forgetKeys(ctx, tx, revokeErasedKeys, r.ClientID)
}

// forgetKeys changes keys of a client, and has all processes forget them.
func forgetKeys(ctx context.Context, tx pgx.Tx, sql string, client job.ID) error {
	keys, err := rowsIn(ctx, tx, pgx.RowTo[string], sql, uuid(client))
	if err != nil {
		return err
	}
	return notifyKeys(ctx, tx, keys)
}

func notifyKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	_, err := tx.Exec(ctx, `SELECT pg_notify('`+revocationChannel+`', key_id) FROM unnest($1::text[]) AS k(key_id)`, keys)
	return err
}

// rowsIn gives the rows of a statement of a transaction.
func rowsIn[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// Erasure reads an erasure.
func (s *Store) Erasure(ctx context.Context, id job.ID) (*job.Erasure, error) {
	e, found, err := queryFirst(ctx, s, scanErasure, readErasure, uuid(id))
	if err == nil && !found {
		err = job.Errorf(job.CodeRequestNotFound, "No erasure with this id was found.")
	}
	return e, err
}

// Erasures lists erasures after the given one, the newest first. It answers where the list
// goes on, the zero id at its end.
func (s *Store) Erasures(ctx context.Context, after job.ID, limit int) (list []*job.Erasure, next job.ID, err error) {
	list, err = queryRows(ctx, s, scanErasure, listErasures, [16]byte(afterOf(after)), limit+1)
	if len(list) > limit {
		list = list[:limit]
		next = list[limit-1].ID
	}
	return list, next, err
}

// OpenErasures reads the erasures that are not done, the oldest first.
func (s *Store) OpenErasures(ctx context.Context) ([]*job.Erasure, error) {
	return queryRows(ctx, s, scanErasure, openErasures, maxOpenErasures)
}
