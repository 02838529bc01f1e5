package operator

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/pg"
)

// Begin stores an operator's action before it happens.
func (a Admin) Begin(ctx context.Context, e admin.AuditEntry) error {
	return a.store.db.Exec(ctx, "audit", statement("auditBegin"),
		pg.UUID(e.AuditID), e.Operator, e.Action, e.TargetType, e.TargetID, e.RequestID, e.Detail)
}

// End stores the HTTP status of an action. `target` is the id of the resource that the action created, or "".
func (a Admin) End(ctx context.Context, id job.ID, status int, target string) error {
	return a.store.db.Exec(ctx, "audit", statement("auditEnd"), pg.UUID(id), status, pg.Nullable(target))
}

// Audit lists the actions of operators.
func (a Admin) Audit(ctx context.Context, q admin.AuditQuery) (admin.Page[admin.AuditEntry], error) {
	from, to := pg.IDRange(job.Query{After: q.After, CreatedAfter: q.From, CreatedBefore: q.To})
	return pageByID(ctx, a.store, q.Limit, to, func(e admin.AuditEntry) job.ID { return e.AuditID },
		func(after job.ID, limit int) (string, []any) {
			return statement("auditList"), []any{pg.Nullable(q.Operator), pg.Nullable(q.Action), pg.Nullable(q.TargetID), q.From, q.To,
				[16]byte(after), [16]byte(from), limit + 1}
		})
}

// Logout ends a session of the console. `expires` is the time after which no cookie of the session is valid.
func (a Admin) Logout(ctx context.Context, session string, expires time.Time) error {
	return a.store.db.Exec(ctx, "session", statement("logout"), session, expires)
}

// LoggedOut reports whether a session was ended.
func (a Admin) LoggedOut(ctx context.Context, session string) (bool, error) {
	ended, err := pg.QueryAs(ctx, a.store.db, "session", pgx.RowTo[bool], statement("loggedOut"), session)
	return err == nil && ended[0], err
}
