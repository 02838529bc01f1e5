package devstack

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/process"
)

func TestTwoStacksAtOnce(t *testing.T) {
	t.Parallel()
	var stacks [2]*Stack
	for i := range stacks {
		s, err := Temp(testContext(t), TempOptions{
			Postgres: map[string]string{"max_connections": "33"},
			Redis:    map[string]string{"maxmemory": "32mb"},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		stacks[i] = s
	}
	a, b := stacks[0], stacks[1]
	require.NotEqual(t, a.Postgres.Port(), b.Postgres.Port())
	require.NotEqual(t, a.Redis.Port(), b.Redis.Port())
	require.Equal(t, "33", queryText(t, a.Postgres.URL(), "SHOW max_connections"))

	execSQL(t, a.Postgres.URL(), "CREATE TABLE mine()")
	require.Equal(t, "0", queryText(t, b.Postgres.URL(), "SELECT count(*)::text FROM pg_tables WHERE tablename='mine'"))
	require.NoError(t, redisClient(t, a.Redis.URL()).Set(testContext(t), "mine", 1, 0).Err())
	require.Zero(t, redisClient(t, b.Redis.URL()).Exists(testContext(t), "mine").Val())

	pids := []int{a.Postgres.PID(), a.Redis.PID()}
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "a second close")
	require.NoDirExists(t, a.dir)
	for _, pid := range pids {
		require.True(t, process.HasEnded(pid))
	}
	require.Equal(t, "1", queryText(t, b.Postgres.URL(), "SELECT '1'"), "the other goes on")
}

func TestTempThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := tempDir(t)
	_, err := thisMachine().temp(testContext(t), TempOptions{WithoutPostgres: true, Redis: map[string]string{"maxmemory": "much"}}, parent)
	require.ErrorIs(t, err, process.ErrExited)
	require.ErrorContains(t, err, "memory value", "the log says why")
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTempRemovesWhatAKilledProcessLeft(t *testing.T) {
	t.Parallel()
	parent := tempDir(t)
	old := time.Now().Add(-2 * time.Minute)
	folder := func(name string, changed time.Time) string {
		dir := filepath.Join(parent, name)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "redis", dataName), 0o711))
		require.NoError(t, os.Chtimes(dir, changed, changed))
		return dir
	}
	abandoned := folder(tempPrefix+"abandoned", old)
	young := folder(tempPrefix+"young", time.Now())
	foreign := folder("something-else", old)
	used := folder(tempPrefix+"used", old)
	lock := &home{dir: used}
	require.NoError(t, lock.acquire())
	defer lock.release()
	require.NoError(t, os.Chtimes(used, old, old))

	s, err := thisMachine().temp(testContext(t), TempOptions{WithoutPostgres: true, WithoutRedis: true}, parent)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoDirExists(t, abandoned)
	for _, dir := range []string{young, foreign, used} {
		require.DirExists(t, dir)
	}
}
