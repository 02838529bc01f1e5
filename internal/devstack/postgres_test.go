package devstack

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/process"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestPostgresKeepsDataOverStopsAndCrashes(t *testing.T) {
	t.Parallel()
	text, log := newLogBuffer()
	p := startPostgres(t, PostgresOptions{Logger: log})
	url, port, pid := p.URL(), p.Port(), p.PID()
	execSQL(t, url, "CREATE TABLE kept AS SELECT 'yes' AS value")
	startedAgain := func() {
		t.Helper()
		require.NoError(t, p.Start(testContext(t)))
		require.Equal(t, []any{url, port}, []any{p.URL(), p.Port()})
		require.Equal(t, "yes", queryText(t, url, "SELECT value FROM kept"))
	}

	require.NoError(t, p.Stop(Fast))
	require.NoError(t, p.Stop(Fast), "a second stop")
	require.NoError(t, p.Stop(Immediate), "a stop of what is stopped")
	require.Zero(t, p.PID())
	require.True(t, process.HasEnded(pid))
	_, err := pgx.Connect(testContext(t), url)
	require.Error(t, err)
	startedAgain()
	require.NotContains(t, p.server.current.Load().Output(), "recovery", "a fast stop is an orderly one")
	again := p.PID()
	require.NoError(t, p.Start(testContext(t)), "a start of what runs")
	require.Equal(t, again, p.PID())

	require.NoError(t, p.Stop(Immediate))
	startedAgain()
	require.Contains(t, p.server.current.Load().Output(), "not properly shut down")
	require.False(t, text.contains("although nobody stopped it"))

	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	testkit.Eventually(t, "the death is reported", func() bool { return text.contains("although nobody stopped it") })
	require.Zero(t, p.PID())
	require.FileExists(t, p.cluster.pidFile())
	startedAgain()
}

// What a start of a new folder leaves when it fails is used by the next one.
func TestPostgresFailedStartShowsTheLogAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "not", "yet", "there")
	_, err := StartPostgres(testContext(t), PostgresOptions{Dir: dir, Settings: map[string]string{"max_konnections": "1"}})
	require.ErrorIs(t, err, process.ErrExited)
	require.ErrorContains(t, err, `unrecognized configuration parameter "max_konnections"`)
	require.ErrorContains(t, err, filepath.Join(dir, "postgres.log"))

	first := startPostgres(t, PostgresOptions{Dir: dir})
	execSQL(t, first.URL(), "CREATE TABLE kept AS SELECT 'yes' AS value")
	require.NoError(t, first.Stop(Fast))
	second := startPostgres(t, PostgresOptions{Dir: dir})
	require.Equal(t, "yes", queryText(t, second.URL(), "SELECT value FROM kept"))
}

func TestPostgresConfiguration(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{Settings: map[string]string{
		"max_connections": "17",
		"work_mem":        "5MB",
		// What the URL says is not for callers to change.
		"listen_addresses": "*",
	}})
	for name, want := range map[string]string{
		"max_connections":         "17",
		"work_mem":                "5MB",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"port":                    strconv.Itoa(p.Port()),
		"fsync":                   "on",
		"synchronous_commit":      "on",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"server_encoding":         "UTF8",
		"password_encryption":     "scram-sha-256",
	} {
		require.Equal(t, want, queryText(t, p.URL(), "SHOW "+name), name)
	}
	collation := queryText(t, p.URL(), "SELECT datcollate FROM pg_database WHERE datname = 'forgerun'")
	require.Equal(t, "C", collation)
	require.Equal(t, "É", queryText(t, p.URL(), "SELECT CASE current_setting('lc_ctype') WHEN 'C' THEN 'É' ELSE upper('é') END"))
	require.Equal(t, "forgerun forgerun", queryText(t, p.URL(), "SELECT current_user || ' ' || current_database()"))

	requirePrivate(t, p.PID())
	parsed, err := url.Parse(p.URL())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(p.Port()), parsed.Host)
	parsed.User = url.UserPassword("forgerun", "guess")
	_, err = pgx.Connect(testContext(t), parsed.String())
	require.ErrorContains(t, err, "password authentication failed")
	info, err := os.Stat(p.server.home.path(passwordName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(p.server.home.path("postgres.log"))
	require.NoError(t, err)
	require.NotContains(t, string(text), p.cluster.password)

	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: p.server.home.dir})
	require.ErrorContains(t, err, "in use by another running stack")
	require.Equal(t, "1", queryText(t, p.URL(), "SELECT '1'"), "the first one goes on")
}

func TestPostgresHalfDoneInitdbIsRedone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tempDir(t), "postgres")
	ctx, cancel := context.WithCancel(testContext(t))
	failed := make(chan error, 1)
	go func() {
		_, err := StartPostgres(ctx, PostgresOptions{Dir: dir})
		failed <- err
	}()
	halfDone := filepath.Join(dir, initdbPrefix+"*", "PG_VERSION")
	testkit.Eventually(t, "initdb is at work", func() bool {
		found, _ := filepath.Glob(halfDone)
		return len(found) == 1
	})
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.NoDirExists(t, filepath.Join(dir, dataName))

	p := startPostgres(t, PostgresOptions{Dir: dir})
	require.Equal(t, "1", queryText(t, p.URL(), "SELECT '1'"))
	left, err := filepath.Glob(filepath.Join(dir, initdbPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPostgresPIDFileWithAStrangersPID(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{})
	left, err := os.ReadFile(p.cluster.pidFile())
	require.NoError(t, err)
	require.NoError(t, p.Stop(Fast))

	stranger := startStranger(t, p.server.home.user)
	_, rest, _ := strings.Cut(string(left), "\n")
	stale := strconv.Itoa(stranger) + "\n" + rest
	require.NoError(t, os.WriteFile(p.cluster.pidFile(), []byte(stale), 0o600))
	require.NoError(t, p.server.home.user.give(p.cluster.pidFile()))

	require.NoError(t, p.Start(testContext(t)))
	require.Equal(t, "1", queryText(t, p.URL(), "SELECT '1'"))
	require.False(t, process.HasEnded(stranger), "a stranger is left alone")
}

func TestPostgresOrphanIsStoppedFirst(t *testing.T) {
	t.Parallel()
	first := startPostgres(t, PostgresOptions{})
	execSQL(t, first.URL(), "CREATE TABLE kept AS SELECT 'yes' AS value")
	require.NoError(t, first.Stop(Fast))
	orphan := runOrphan(t, first.server)

	text, log := newLogBuffer()
	second := startPostgres(t, PostgresOptions{Dir: first.server.home.dir, Logger: log})
	testkit.Eventually(t, "the orphan is gone", orphan.HasExited)
	require.True(t, text.contains("a former parent left behind"))
	require.Equal(t, "yes", queryText(t, second.URL(), "SELECT value FROM kept"))
}

// runOrphan runs a stopped server's program with neither lock nor owner, as
// when its parent was killed on a system that does not end it.
func runOrphan(t *testing.T, s *server) *process.Process {
	t.Helper()
	c := s.program.command(s.port)
	c.DeathSignal = syscall.SIGKILL
	p, err := process.Start(c)
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	require.NoError(t, p.Await(testContext(t), func(ctx context.Context) (bool, error) {
		return s.program.ready(ctx, p.PID(), s.port)
	}))
	return p
}

func TestPostgresWaitsForBackendsOfAKilledServer(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{})
	conn, err := pgx.Connect(testContext(t), p.URL())
	require.NoError(t, err)
	defer closeConn(conn)
	backend := int(conn.PgConn().PID())
	endBackend := func() { _ = syscall.Kill(backend, syscall.SIGKILL) }
	// A busy backend does not notice that its postmaster is gone.
	ctx, ended := testContext(t), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Exec(ctx, "DO $$ BEGIN LOOP END LOOP; END $$")
	}()
	defer func() { endBackend(); <-ended }()
	testkit.Eventually(t, "the backend is busy", func() bool {
		return queryText(t, p.URL(), "SELECT count(*)::text FROM pg_stat_activity WHERE state='active' AND query LIKE 'DO %'") == "1"
	})
	require.NoError(t, syscall.Kill(p.PID(), syscall.SIGKILL))
	testkit.Eventually(t, "the death is noticed", func() bool { return p.PID() == 0 })

	started := make(chan error, 1)
	go func() { started <- p.Start(testContext(t)) }()
	testkit.Eventually(t, "a start meets the backend", func() bool {
		text, err := os.ReadFile(p.server.home.path("postgres.log"))
		return err == nil && strings.Contains(string(text), "pre-existing shared memory block")
	})
	require.False(t, process.HasEnded(backend))
	endBackend()
	require.NoError(t, <-started)
	require.Equal(t, "1", queryText(t, p.URL(), "SELECT '1'"))
}

func TestPostgresPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	port := taken.Addr().(*net.TCPAddr).Port
	dir := postgresDir(t)

	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: dir, Port: port})
	require.ErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, strconv.Itoa(port))
	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: dir, Port: 65536})
	require.ErrorContains(t, err, "between 0 and 65535")

	free, err := reservePort()
	require.NoError(t, err)
	p := startPostgres(t, PostgresOptions{Dir: dir, Port: free.number})
	require.Equal(t, free.number, p.Port())
}

func TestPostgresStopsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if i%4 == 0 {
				_ = p.Start(testContext(t))
			}
			_ = p.PID()
			if err := p.Stop(Immediate); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.NoError(t, p.Stop(Immediate))
	require.Zero(t, p.PID())
}

func TestPostgresStartsAmongItsClientsRush(t *testing.T) {
	t.Parallel()
	p := startPostgres(t, PostgresOptions{})
	full := func(connected bool) *cluster {
		c := *p.cluster
		c.connected = connected
		return &c
	}
	require.NoError(t, p.Stop(Fast))
	p.cluster.settings = map[string]string{"max_connections": "4", "superuser_reserved_connections": "1", "max_wal_senders": "0"}
	require.NoError(t, p.Start(testContext(t)))
	for range 4 {
		conn, err := pgx.Connect(testContext(t), p.URL())
		require.NoError(t, err)
		defer closeConn(conn)
	}
	ready, err := full(true).ready(testContext(t), p.PID(), p.Port())
	require.NoError(t, err)
	require.True(t, ready, "a full server is a ready one")
	ready, err = full(false).ready(testContext(t), p.PID(), p.Port())
	require.NoError(t, err)
	require.False(t, ready, "its database has yet to be seen")
}
