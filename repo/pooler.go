package repo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// RefusePooler returns ErrPooled if the database URL leads to a pooler in transaction mode. In this mode, session settings, prepared
// statements, locks and notifications do not work. If Postgres is down, or the pooler is too busy for the check, RefusePooler returns nil.
func (s *Store) RefusePooler(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, poolerTimeout)
	defer cancel()
	if err := refusePooler(ctx, &s.db.Pool.Config().ConnConfig.Config); err != nil {
		return fmt.Errorf("the server at the database URL %w: use session mode (pool_mode = session), or Postgres itself", err)
	}
	return nil
}

const poolerTimeout = 2 * time.Second

func refusePooler(ctx context.Context, c *pgconn.Config) error {
	var sessions [2]*pgconn.PgConn
	for i := range sessions {
		conn, err := pgconn.ConnectConfig(ctx, c)
		if err != nil {
			return nil
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		sessions[i] = conn
	}
	// In transaction mode, two idle sessions usually share a server connection. Then pg_backend_pid returns the same number in both
	// sessions.
	for range 5 {
		first, err1 := serverOf(ctx, sessions[0])
		second, err2 := serverOf(ctx, sessions[1])
		switch {
		case err1 != nil || err2 != nil:
			return nil
		case first == second:
			return ErrPooled
		}
	}
	return nil
}

func serverOf(ctx context.Context, conn *pgconn.PgConn) (pid string, err error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid()`).ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}
