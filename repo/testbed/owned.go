package testbed

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/verdict/fault"
)

// afterOwner is a row. Its first columns are scanned into `owner`, the others into the arguments of Scan.
type afterOwner struct {
	pgx.CollectableRow
	owner []any
}

func (r afterOwner) Scan(to ...any) error {
	return r.CollectableRow.Scan(slices.Concat(r.owner, to)...)
}

// OwnedSessions lists the sessions of all clients, or of `client` if it is set, the latest first.
func (s *Store) OwnedSessions(ctx context.Context, client, after job.ID, limit int) ([]testbed.OwnedSession, job.ID, error) {
	return pg.QueryPage(ctx, s.db, limit, func(n testbed.OwnedSession) job.ID {
		id, _ := job.ParseID(n.ID)
		return id
	}, func(row pgx.CollectableRow) (n testbed.OwnedSession, err error) {
		n.Session, err = scanSession(afterOwner{row, []any{&n.ClientID}})
		return n, err
	}, statement("ownedSessions"), pg.UUID(client), [16]byte(pg.AfterOf(after)), limit+1)
}

// OwnerOfSession returns the owner of a session. `found` is false if there is no such session.
func (s *Store) OwnerOfSession(ctx context.Context, id job.ID) (owner job.ID, found bool, err error) {
	return pg.QueryFirst(ctx, s.db, pgx.RowTo[job.ID], statement("ownerOfSession"), pg.UUID(id))
}

// OwnedFaults lists the rules of all clients, or of `client` if it is set. The rules are sorted by client, session and position.
func (s *Store) OwnedFaults(ctx context.Context, client job.ID, limit int) ([]testbed.OwnedRule, error) {
	return pg.Query(ctx, s.db, func(row pgx.CollectableRow) (r testbed.OwnedRule, err error) {
		c, err := scanFault(afterOwner{row, []any{&r.ClientID, &r.Label}})
		r.View = fault.ViewOf(c)
		return r, err
	}, statement("ownedFaults"), pg.UUID(client), limit)
}

// NextDue returns the next time at which a job or a schedule is due, or nil if there is none.
func (s *Store) NextDue(ctx context.Context) (*time.Time, error) {
	return pg.QueryValue[*time.Time](ctx, s.db, statement("nextDue"), job.PausedUntil)
}
