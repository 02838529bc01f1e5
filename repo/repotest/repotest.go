// Package repotest provides a separate Postgres database for each test: a clone of a template with the newest schema.
//
// "make test" starts one server for all packages, see Shared. Without "make test", each test binary starts its own server on demand and
// removes it at the end. A package that uses repotest calls Main in its TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }
//
// These servers do not flush writes to disk. A test that crashes or measures a server must start its own server with the function Server.
package repotest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo"
)

// setupTimeout limits each step of a test's setup. The first step includes the start of the server.
const setupTimeout = 90 * time.Second

var shared server

// Main runs the tests, then stops and removes the server.
func Main(m *testing.M) int {
	shared.open = true
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "repotest:", err)
		return max(code, 1)
	}
	return code
}

// URL creates a database with the newest schema and returns its URL. The database is dropped when the test ends, even if connections
// remain.
func URL(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	name, err := shared.clone(ctx)
	require.NoError(t, err)
	url := shared.urlOf(name)
	idle.Store(url, make(chan *pgx.Conn, 1))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		forget(ctx, url)
		require.NoError(t, shared.drop(ctx, name))
	})
	return url
}

// OpenURL opens another store on the database, as a second process would do. It closes the store when the test ends.
func OpenURL(t testing.TB, url string, opts ...func(*repo.Config)) *repo.Store {
	t.Helper()
	cfg := Config(t, url)
	for _, opt := range opts {
		opt(&cfg)
	}
	s, err := repo.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Config returns the configuration that OpenURL uses.
func Config(t testing.TB, url string) repo.Config {
	return repo.Config{
		URL: url, Timeout: 5 * time.Second, ApplicationName: t.Name(),
		RetentionJobs: 30 * 24 * time.Hour,
		Logger:        slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Registry:      prometheus.NewRegistry(),
	}
}

// Server starts a Postgres server for this test only, with durable writes, the newest schema and the given environment variables. The test
// may stop, crash and start it. The server is removed when the test ends.
func Server(t testing.TB, environment ...string) *stack.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	cluster := os.Getenv(clusterVariable)
	servers, err := stack.Temp(ctx, &stack.ServerOptions{Env: environment, Cluster: cluster}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, servers.Close()) })
	if cluster == "" {
		require.NoError(t, repo.Migrate(ctx, servers.Postgres.URL(), -1))
	}
	return servers.Postgres
}
