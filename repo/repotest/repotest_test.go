package repotest

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// Concurrent tests have separate databases. Each is dropped after its test, even if connections remain.
func TestEachTestHasADatabase(t *testing.T) {
	t.Parallel()
	names := make(chan string, 8)
	t.Run("at once", func(t *testing.T) {
		for range cap(names) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				var s *repo.Store
				t.Cleanup(func() { s.Close() }) // after the database is gone
				u, err := url.Parse(URL(t))
				require.NoError(t, err)
				names <- strings.TrimPrefix(u.Path, "/")
				s, err = repo.Open(Config(t, u.String()))
				require.NoError(t, err)
				require.NoError(t, s.Ping(t.Context()), "it has the schema")
			})
		}
	})
	close(names)
	for name := range names {
		var exists bool
		err := shared.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists)
		require.NoError(t, err)
		require.False(t, exists, name)
	}
}
