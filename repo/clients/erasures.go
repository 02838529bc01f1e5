package clients

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// maxOpenErasures is the maximum number of open erasures that the leader reads at a time. Newer erasures wait until older ones have
// ended.
const maxOpenErasures = 100

var scanErasure = pgx.RowToAddrOfStructByName[job.Erasure]

// BeginErasure stores the erasure of a client and returns it. The commit revokes the client's keys in all processes. From then on, the
// store refuses new rows of the client. If an erasure is already open, BeginErasure returns it unchanged. If the client is unknown or
// already erased, it returns pg.ErrErased.
func (s *Store) BeginErasure(ctx context.Context, id job.ID, r job.ErasureRequest) (e *job.Erasure, begun bool, err error) {
	err = s.db.InTx(ctx, "erase", func(ctx context.Context, tx pgx.Tx) error {
		known, err := tx.Exec(ctx, statement("lockErasedClient"), pg.UUID(r.ClientID))
		if err != nil {
			return err
		}
		// The lock may have waited for a transaction that began an erasure; only a new statement sees that erasure.
		var found bool
		e, found, err = pg.First(pg.RowsIn(ctx, tx, scanErasure, statement("erasureOfClient"), pg.UUID(r.ClientID)))
		switch {
		case err != nil, found && e.FinishedAt == nil:
			return err
		case found, known.RowsAffected() == 0:
			return pg.ErrErased
		}
		e, begun, err = pg.First(pg.RowsIn(ctx, tx, scanErasure, statement("insertErasure"),
			pg.UUID(id), pg.UUID(r.ClientID), r.Operator, r.Reason, r.RequestID))
		switch {
		case err != nil:
			return err
		case !begun: // another transaction inserted an erasure without locking the client
			return pg.ErrErased
		}
		_, err = forgetKeys(ctx, tx, statement("revokeErasedKeys"), r.ClientID)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return e, begun, nil
}

// IsErased reports whether a client was erased, or is being erased.
func (s *Store) IsErased(ctx context.Context, client job.ID) (bool, error) {
	_, erased, err := pg.QueryFirst(ctx, s.db, scanErasure, statement("erasureOfClient"), pg.UUID(client))
	return erased, err
}

// forgetKeys revokes or removes keys with the statement `sql`, and makes all processes forget them.
func forgetKeys(ctx context.Context, tx pgx.Tx, sql string, client job.ID) (int, error) {
	keys, err := pg.RowsIn(ctx, tx, pgx.RowTo[string], sql, pg.UUID(client))
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT pg_notify('`+revocationChannel+`', key_id) FROM unnest($1::text[]) AS k(key_id)`, keys)
	}
	return len(keys), err
}

// Erasure reads an erasure.
func (s *Store) Erasure(ctx context.Context, id job.ID) (*job.Erasure, error) {
	missing := job.Errorf(job.CodeRequestNotFound, "No erasure with this id was found.")
	return pg.QueryOne(ctx, s.db, missing, scanErasure, statement("readErasure"), pg.UUID(id))
}

// Erasures lists erasures after the given one, the newest first. It returns the id to continue after, zero at the end.
func (s *Store) Erasures(ctx context.Context, after job.ID, limit int) (list []*job.Erasure, next job.ID, err error) {
	return pg.QueryPage(ctx, s.db, limit, func(e *job.Erasure) job.ID { return e.ID }, scanErasure,
		statement("listErasures"), [16]byte(pg.AfterOf(after)), limit+1)
}

// OpenErasures reads the open erasures, the oldest first.
func (s *Store) OpenErasures(ctx context.Context) ([]*job.Erasure, error) {
	return pg.Query(ctx, s.db, scanErasure, statement("openErasures"), maxOpenErasures)
}

// EraseStep does the next part of an erasure. It commits removals and progress together, so a crash neither loses nor repeats a part.
// ErasureStep.Erasure is nil if the erasure was already done, or if another process works on it.
func (s *Store) EraseStep(ctx context.Context, id job.ID) (step job.ErasureStep, err error) {
	err = s.db.InTx(ctx, "erase", func(ctx context.Context, tx pgx.Tx) error {
		// The wait for a lock must be short, because a transaction that waits holds back the event streams of all clients.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = `+pg.Milliseconds(s.db.Timeout/pg.LockedRowFraction)); err != nil {
			return err
		}
		locked, found, err := pg.First(pg.RowsIn(ctx, tx, scanErasure, statement("lockErasure"), pg.UUID(id)))
		if err != nil || !found {
			return err
		}
		part := erasing{ErasureStep: job.ErasureStep{Erasure: locked}, tx: tx}
		if _, err := part.advance(ctx, eraseSteps); err != nil {
			return err
		}
		if e := part.Erasure; e.FinishedAt == nil {
			part.Erasure, _, err = pg.First(pg.RowsIn(ctx, tx, scanErasure, statement("moveErasure"),
				pg.UUID(e.ID), e.Step, pg.UUID(e.Position), pg.UUID(e.PositionJob), e.Removed, e.Remaining))
		}
		step = part.ErasureStep
		return err
	})
	if err != nil {
		return job.ErasureStep{}, err
	}
	return step, nil
}

// ResetStep does the next part of the reset of a client's test bed. It continues with step e.Step, or begins with the first step if e.Step
// is empty. It stores the progress in e. A later failure does not undo finished parts.
func (s *Store) ResetStep(ctx context.Context, e *job.Erasure) (step job.ErasureStep, done bool, err error) {
	err = s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		after := *e
		after.Removed = maps.Clone(e.Removed)
		part := erasing{ErasureStep: job.ErasureStep{Erasure: &after}, tx: tx}
		done, err = part.advance(ctx, resetSteps)
		step = part.ErasureStep
		return err
	})
	if err == nil {
		*e = *step.Erasure
	}
	return step, done, err
}

type erasing struct {
	job.ErasureStep
	tx pgx.Tx
}

// advance does a part of the current step of an erasure. `last` is true if this part completed the last step. The next call of advance
// then begins with the first step. If the stored step is unknown, for example because a newer ForgeRun wrote it, the erasure starts
// again. Every step may be repeated.
func (e *erasing) advance(ctx context.Context, steps []eraseStep) (last bool, err error) {
	n := max(0, slices.IndexFunc(steps, func(s eraseStep) bool { return s.name == e.Erasure.Step }))
	before, removed := e.Erasure.Position, maps.Clone(e.Erasure.Removed)
	done, err := steps[n].run(e, ctx)
	e.Progress = done || len(e.Unfinished) > 0 || e.Erasure.Position != before || !maps.Equal(e.Erasure.Removed, removed)
	if done {
		e.Erasure.Position, e.Erasure.PositionJob = job.ID{}, job.ID{}
		last, n = n+1 == len(steps), (n+1)%len(steps)
	}
	e.Erasure.Step = steps[n].name
	return last, err
}

func (e *erasing) removed(table string, n int) { e.Erasure.Removed[table] += n }
