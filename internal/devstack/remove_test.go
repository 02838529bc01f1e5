package devstack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestRemoveDeletesAServersFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "redis")
	r := startRedis(t, RedisOptions{Dir: dir})
	require.ErrorContains(t, Remove(dir), "in use")
	require.NoError(t, redisClient(t, r.URL()).Ping(testContext(t)).Err(), "a refused removal harms nothing")

	require.NoError(t, r.Stop())
	require.NoError(t, Remove(dir))
	require.NoDirExists(t, dir)
	require.NoError(t, Remove(dir), "a second removal")
}

func TestRemoveStopsAnOrphan(t *testing.T) {
	t.Parallel()
	s := startPostgres(t, PostgresOptions{}).server
	require.NoError(t, s.stop(step(s.program.command(s.port).DeathSignal, quitGrace)))
	orphan := runOrphan(t, s)
	require.NoError(t, Remove(s.home.dir))
	testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
	require.NoDirExists(t, s.home.dir)
}

func TestRemoveRefusesOtherFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600))
	require.ErrorContains(t, Remove(dir), "not a server's folder")
	require.FileExists(t, filepath.Join(dir, "precious"))
}
