package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

// smallDisk needs root.
func smallDisk(t *testing.T, url string) string {
	t.Helper()
	dir := tempDir(t)
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skip("a small file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	own := openPool(t, url)
	var database, data string
	require.NoError(t, own.QueryRow(t.Context(), `SELECT current_database(), current_setting('data_directory')`).Scan(&database, &data))
	own.Close()
	info, err := os.Stat(data)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.NoError(t, os.Chown(dir, int(owner.Uid), int(owner.Gid)))
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.Database = "template1"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, sql := range []string{
		fmt.Sprintf(`CREATE TABLESPACE small LOCATION '%s'`, dir),
		fmt.Sprintf(`ALTER DATABASE %s SET TABLESPACE small`, pgx.Identifier{database}.Sanitize()),
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	return dir
}

// A process is unready if Postgres answers but cannot write.
func TestReadinessWithoutDiskSpace(t *testing.T) {
	t.Parallel()
	postgres := repotest.Server(t)
	dir := smallDisk(t, postgres.URL())
	s := newStackOn(t, postgres.URL())
	api := s.startLeader()
	u := s.newUser(api)
	u.submit(api, execute("SUCCESS_FAST"))
	ready := func() answer { return u.call(api, "GET", "/readyz", "") }
	require.Equal(t, http.StatusOK, ready().status)
	fill := filepath.Join(dir, "fill")
	require.ErrorIs(t, os.WriteFile(fill, make([]byte, 64<<20), 0o600), syscall.ENOSPC)
	eventually(t, "not ready", func() bool { return ready().status == http.StatusServiceUnavailable })
	require.Contains(t, ready().body, "The database has no room left on its disk.")
	require.NoError(t, os.Remove(fill))
	eventually(t, "ready again", func() bool { return ready().status == http.StatusOK })
	s.startWorker()
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	s.checkInvariants()
}
