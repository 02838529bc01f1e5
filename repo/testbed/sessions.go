package testbed

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func scanSession(row pgx.CollectableRow) (s verdict.Session, err error) {
	var id job.ID
	var began time.Time
	var ended *time.Time
	err = row.Scan(&id, &s.Label, &s.Profile, &s.Seed, &s.Rules, &s.Recorded, &began, &ended)
	s.ID, s.CreatedAt, s.EndedAt = id.String(), fault.Time(began), fault.TimeOf(ended)
	return s, err
}

// StartSession begins a session of a client. It returns false if an open session has the label, or if the client has `keep` open sessions.
// After it has begun a session, it removes the oldest ended sessions, so that about `keep` sessions remain.
func (s *Store) StartSession(ctx context.Context, client job.ID, n verdict.Session, keep int) (began verdict.Session, ok bool, err error) {
	err = s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		began, ok, err = pg.First(pg.RowsIn(ctx, tx, scanSession, statement("startSession"),
			uuidOf(n.ID), pg.UUID(client), n.Label, string(n.Profile), n.Seed, n.Rules, keep))
		if err != nil || !ok {
			return err
		}
		return forget(ctx, tx, client, keep)
	})
	return began, ok, err
}

func forget(ctx context.Context, tx pgx.Tx, client job.ID, keep int) error {
	_, err := tx.Exec(ctx, statement("forgetSessions"), pg.UUID(client), keep, verdict.MaxBytes, verdict.MaxAllBytes)
	return err
}

// EnterSession finds the client's open session with this label. If there is none, it returns the zero id. If `request` is set,
// EnterSession records that the request belongs to this session. `unlabeled` reports whether the client's session without a label is
// open.
func (s *Store) EnterSession(ctx context.Context, client job.ID, label, request string) (session job.ID, unlabeled bool, err error) {
	_, err = pg.QueryAs(ctx, s.db, "testbed", func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, pg.ScanRow(row, &session, &unlabeled)
	}, statement("enterSession"), pg.UUID(client), label, pg.Nullable(request))
	return session, unlabeled, err
}

// OpenLabeled opens a session with a label. The new session is a copy of the client's open session without a label, including the rules.
// OpenLabeled does nothing if the client has no open session without a label. It also does nothing if the label is in use, or if the
// client has `keep` open sessions.
func (s *Store) OpenLabeled(ctx context.Context, client, id job.ID, label string, keep int) error {
	return s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, statement("openLabeled"), pg.UUID(client), pg.UUID(id), label, keep)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return forget(ctx, tx, client, keep)
	})
}

// EndSession ends a session of a client and removes the rules of its profile. It returns false if the session does not exist. A session
// that has already ended is returned unchanged. Ending the session without a label also ends all labeled sessions.
func (s *Store) EndSession(ctx context.Context, client, id job.ID) (ended verdict.Session, ok bool, err error) {
	err = s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		ended, ok, err = pg.First(pg.RowsIn(ctx, tx, scanSession, statement("endSession"), pg.UUID(client), pg.UUID(id)))
		if err != nil || !ok {
			return err
		}
		if ended.Label == "" { // a separate statement also ends labeled sessions that began while endSession waited
			if _, err := tx.Exec(ctx, statement("endLabeled"), pg.UUID(client)); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, statement("removeEndedFaults"), pg.UUID(client), ended.Label == "" && ended.Profile != "")
		return err
	})
	if err != nil || ok {
		return ended, ok, err
	}
	return s.Session(ctx, client, id)
}

// Session finds a session of a client.
func (s *Store) Session(ctx context.Context, client, id job.ID) (verdict.Session, bool, error) {
	return pg.QueryFirst(ctx, s.db, scanSession, statement("listSessions"), pg.UUID(client), pg.UUID(id), nil, 1)
}

// Sessions lists the sessions of a client, the latest first. If label is set, it lists only sessions with that label.
func (s *Store) Sessions(ctx context.Context, client job.ID, label *string) ([]verdict.Session, error) {
	return pg.Query(ctx, s.db, scanSession, statement("listSessions"), pg.UUID(client), pgtype.UUID{}, label, verdict.MaxSessions)
}

// Record stores an exchange in an open session. It returns false if the session is not open.
func (s *Store) Record(ctx context.Context, scope testbed.Scope, x *verdict.Exchange) (bool, error) {
	text, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	most := verdict.MaxBytes
	if !scope.Session.IsZero() {
		most = verdict.MaxLabeled
	}
	n, err := s.db.Change(ctx, "testbed", statement("recordExchange"), pg.UUID(scope.Client), pg.UUID(scope.Session), string(text),
		verdict.MaxExchanges, most)
	return n > 0, err
}

// OpenStreams counts the session's event streams that have no recorded end. For the session without a label, it also counts the streams of
// the labeled sessions.
func (s *Store) OpenStreams(ctx context.Context, client job.ID, n verdict.Session) (int, error) {
	return pg.QueryValue[int](ctx, s.db, statement("openStreams"), pg.UUID(client), uuidOf(n.ID), n.Label == "")
}

const exchangesAtOnce = 20_000

func (s *Store) logOf(ctx context.Context, client job.ID, session pgtype.UUID) (*verdict.Log, error) {
	log := &verdict.Log{}
	for last, read := 0, exchangesAtOnce; read == exchangesAtOnce; {
		rows, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (none struct{}, err error) {
			var x verdict.Exchange
			if err = row.Scan(&last, &x); err == nil {
				log.Add(&x)
			}
			return none, err
		}, statement("sessionExchanges"), pg.UUID(client), session, last, exchangesAtOnce)
		if err != nil {
			return nil, err
		}
		read = len(rows)
	}
	return log, nil
}
