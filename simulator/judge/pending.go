package judge

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// PendingDeliveries counts the deliveries in the database that are not settled:
// whoever waits for the end of a run has to wait for them too.
func PendingDeliveries(ctx context.Context, databaseURL string) (n int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT count(*) FROM deliveries WHERE state = 'PENDING'").Scan(&n)
	return n, err
}
