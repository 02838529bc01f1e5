package stack

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestPostgresFailedStartShowsLogAndCanBeRetried(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "not", "yet", "there")
	_, err := StartPostgres(testContext(t), ServerOptions{Dir: dir, Settings: map[string]string{"max_konnections": "1"}})
	require.ErrorIs(t, err, ErrExited)
	require.ErrorContains(t, err, `unrecognized configuration parameter "max_konnections"`)
	require.ErrorContains(t, err, filepath.Join(dir, "postgres.log"))

	p := newPostgres(t, ServerOptions{Dir: dir})
	require.Equal(t, "scram-sha-256", query(t, p.URL(), "SELECT string_agg(DISTINCT auth_method, ', ') FROM pg_hba_file_rules"))
}

func TestPostgresConfiguration(t *testing.T) {
	t.Parallel()
	p := newPostgres(t, ServerOptions{Settings: map[string]string{
		"max_connections": "17", "work_mem": "5MB",
		"listen_addresses": "*", // settings must not change the listen address
	}})
	for name, want := range map[string]string{
		"max_connections": "17", "work_mem": "5MB", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
		"port": strconv.Itoa(p.Port()), "fsync": "on", "synchronous_commit": "on", "timezone": "UTC", "log_timezone": "UTC",
		"server_encoding": "UTF8", "password_encryption": "scram-sha-256",
	} {
		require.Equal(t, want, query(t, p.URL(), "SHOW "+name), name)
	}
	require.Equal(t, "C", query(t, p.URL(), "SELECT datcollate FROM pg_database WHERE datname = 'forgerun'"))
	require.Equal(t, "É", query(t, p.URL(), "SELECT CASE current_setting('lc_ctype') WHEN 'C' THEN 'É' ELSE upper('é') END"))
	require.Equal(t, "forgerun forgerun", query(t, p.URL(), "SELECT current_user || ' ' || current_database()"))

	parsed, err := url.Parse(p.URL())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(p.Port()), parsed.Host)
	parsed.User = url.UserPassword("forgerun", "guess")
	_, err = pgx.Connect(testContext(t), parsed.String())
	require.ErrorContains(t, err, "password authentication failed")
	info, err := os.Stat(p.home.path(passwordName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(p.home.path("postgres.log"))
	require.NoError(t, err)
	require.NotContains(t, string(text), p.password)
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "postgres")
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := StartPostgres(ctx, ServerOptions{Dir: dir})
		failed <- err
	}()
	unfinished := filepath.Join(dir, initdbPrefix+"*", "PG_VERSION")
	testkit.Eventually(t, "initdb is at work", func() bool {
		found, _ := filepath.Glob(unfinished)
		return len(found) == 1
	})
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.NoDirExists(t, filepath.Join(dir, dataName))

	p := newPostgres(t, ServerOptions{Dir: dir})
	require.Equal(t, "1", query(t, p.URL(), "SELECT '1'"))
	left, err := filepath.Glob(filepath.Join(dir, initdbPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPIDFileOfUnrelatedProcess(t *testing.T) {
	t.Parallel()
	p := newPostgres(t, ServerOptions{})
	left, err := os.ReadFile(p.pidFile())
	require.NoError(t, err)
	require.NoError(t, p.Stop())

	unrelated := exec.Command("sleep", "600")
	unrelated.Dir = "/"
	runAs(unrelated, p.home.user.credential(), 0)
	require.NoError(t, unrelated.Start())
	t.Cleanup(func() {
		_ = unrelated.Process.Kill()
		_ = unrelated.Wait()
	})
	_, rest, _ := strings.Cut(string(left), "\n")
	stale := strconv.Itoa(unrelated.Process.Pid) + "\n" + rest
	require.NoError(t, os.WriteFile(p.pidFile(), []byte(stale), 0o600))
	require.NoError(t, p.home.user.give(p.pidFile()))
	require.NoError(t, p.home.noteRunning(unrelated.Process.Pid))

	require.NoError(t, p.Start(testContext(t)))
	require.Equal(t, "1", query(t, p.URL(), "SELECT '1'"))
	require.False(t, hasEnded(unrelated.Process.Pid), "the unrelated process still runs")
}

func TestPostgresWaitsForBackendsOfAKilledServer(t *testing.T) {
	t.Parallel()
	said, log := newLogger()
	p := newPostgres(t, ServerOptions{Logger: log})
	conn := connect(t, p.URL())
	backend := int(conn.PgConn().PID())
	endBackend := func() { _ = signalTo(backend, syscall.SIGKILL) }
	// A busy backend does not notice that its postmaster is gone.
	ctx, ended := testContext(t), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, "DO $$ BEGIN LOOP END LOOP; END $$")
	}()
	defer func() { endBackend(); <-ended }()
	testkit.Eventually(t, "the backend is busy", func() bool {
		return query(t, p.URL(), "SELECT count(*)::text FROM pg_stat_activity WHERE state='active' AND query LIKE 'DO %'") == "1"
	})
	require.NoError(t, signalTo(p.PID(), syscall.SIGKILL))
	testkit.Eventually(t, "the death is noticed", func() bool { return p.PID() == 0 })

	started := make(chan error, 1)
	go func() { started <- p.Start(testContext(t)) }()
	testkit.Eventually(t, "the start waits for the backend", func() bool { return said.contains("the previous server is still running") })
	require.False(t, hasEnded(backend))
	endBackend()
	require.NoError(t, <-started)
	require.Equal(t, "1", query(t, p.URL(), "SELECT '1'"))
}
