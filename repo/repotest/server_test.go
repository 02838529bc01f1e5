package repotest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
)

// Several test binaries may use one server that is somebody else's.
func TestSharedServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	foreign := Server(t).URL()
	processes := []*server{{open: true, url: foreign}, {open: true, url: foreign}}
	const each = 4
	urls, errs := make([]string, each*len(processes)), make([]error, each*len(processes))
	var clones sync.WaitGroup
	for i := range urls {
		clones.Go(func() { urls[i], errs[i] = processes[i%2].clone(ctx) })
	}
	clones.Wait()
	require.NoError(t, errors.Join(errs...))
	for i, u := range urls {
		s, err := repo.Open(Config(t, u))
		require.NoError(t, err)
		require.NoError(t, s.Ping(ctx), "it has the schema")
		if i%2 == 0 {
			require.NoError(t, processes[0].drop(ctx, u), "whoever is connected")
		}
		s.Close()
	}
	for _, p := range processes {
		require.NoError(t, p.stop())
		require.NoError(t, p.stop())
	}

	conn, err := pgx.Connect(ctx, foreign)
	require.NoError(t, err, "stop leaves a foreign server alone")
	defer func() { _ = conn.Close(ctx) }()
	count := func(like string) (n int) {
		require.NoError(t, conn.QueryRow(ctx, `SELECT count(*)::int FROM pg_database WHERE datname LIKE $1`, like).Scan(&n))
		return n
	}
	require.Equal(t, 1, count("forgerun_template_%"))
	require.Equal(t, each, count("forgerun_test_%"))
}
