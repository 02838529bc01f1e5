package repotest_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

// Each test has a migrated database of its own, which is gone when it ends.
func TestURL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	var inner string
	t.Run("inner", func(t *testing.T) {
		inner = repotest.URL(t)
		conn, err := pgx.Connect(ctx, inner)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(ctx)) }()
		_, err = conn.Exec(ctx, `INSERT INTO clients (client_id) VALUES (gen_random_uuid())`)
		require.NoError(t, err, "the schema is there")

		other, err := pgx.Connect(ctx, repotest.URL(t))
		require.NoError(t, err)
		defer func() { require.NoError(t, other.Close(ctx)) }()
		var clients int
		require.NoError(t, other.QueryRow(ctx, `SELECT count(*) FROM clients`).Scan(&clients))
		require.Zero(t, clients, "another database sees nothing of it")
	})
	_, err := pgx.Connect(ctx, inner)
	require.ErrorContains(t, err, "does not exist")
}
