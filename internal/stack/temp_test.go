package stack

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTempLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Temp(testContext(t), &ServerOptions{Settings: map[string]string{"max_connections": "33"}}, &ServerOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.Equal(t, "33", query(t, s.Postgres.URL(), "SHOW max_connections"))
	require.Equal(t, "+PONG", ask(t, s.Redis.server, "PING")[0])
	pids := []int{s.Postgres.PID(), s.Redis.PID()}
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "a second close")
	require.NoDirExists(t, s.folder.dir)
	requireGone(t, pids)
}

func TestFailedTempLeavesNothing(t *testing.T) {
	t.Parallel()
	parent := tempDir(t)
	_, err := tempIn(testContext(t), parent, nil, &ServerOptions{Settings: map[string]string{"maxmemory": "much"}})
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, "memory value", "the error has the log")
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTempCleansUpAfterKilledProcess(t *testing.T) {
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

	s, err := tempIn(testContext(t), parent, nil, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoDirExists(t, abandoned)
	for _, dir := range []string{young, foreign, used} {
		require.DirExists(t, dir)
	}
}
