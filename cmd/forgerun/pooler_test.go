package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// pooler starts PgBouncer for the stack's database, and returns PgBouncer's URL. It uses the configuration in docs/how-to/scale.md.
func (s *stack) pooler(mode string) (url string) {
	s.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer"
		if _, err := os.Stat(program); err != nil {
			s.t.Skip("PgBouncer is not installed: scripts/setup.sh ci")
		}
	}
	database, err := pgx.ParseConfig(s.databaseURL)
	require.NoError(s.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(s.t, l.Close())
	file := filepath.Join(s.t.TempDir(), "pgbouncer.ini")
	require.NoError(s.t, os.WriteFile(file, fmt.Appendf(nil, `[databases]
%[1]s = host=%[2]s port=%[3]d dbname=%[1]s user=%[4]s password=%[5]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[6]d
unix_socket_dir =
auth_type = any
pool_mode = %[7]s
default_pool_size = 100
`, database.Database, database.Host, database.Port, database.User, database.Password, port, mode), 0o600))
	arguments := []string{file}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		arguments = append([]string{"-u", "nobody"}, file)
	}
	log := new(testkit.Output)
	bouncer := exec.Command(program, arguments...)
	bouncer.Stdout, bouncer.Stderr = log, log
	require.NoError(s.t, bouncer.Start())
	s.t.Cleanup(func() {
		_ = bouncer.Process.Kill()
		_ = bouncer.Wait()
		if s.t.Failed() {
			s.t.Log(tail(log))
		}
	})
	eventually(s.t, "the pooler listens", func() bool {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return fmt.Sprintf("postgres://forgerun@127.0.0.1:%d/%s?sslmode=disable", port, database.Database)
}

func TestPoolerInSessionMode(t *testing.T) {
	s := newStack(t, hooks)
	s.env["FORGERUN_DATABASE_URL"] = s.pooler("session")
	api, _, u := s.startDelivering()
	u.receive(api, nil, "job.succeeded")
	ids := u.submitMany(api, 200, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", ids...)
	s.awaitDeliveries()
	require.NotZero(t, s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND application_name = 'forgerun worker'`), "the sessions have their application name")
	second := s.startAPI() // this api gets pooled connections that other sessions used before
	require.True(t, u.accepts(second, u.key))
	s.exec(`UPDATE api_keys SET revoked_at = clock_timestamp()`)
	s.exec(`SELECT pg_notify('forgerun_keys', key_id) FROM api_keys`)
	eventually(t, "notifications arrive", func() bool { return !u.accepts(second, u.key) })
	s.checkInvariants()
}

// A process refuses to start with a pooler in transaction mode, because sessions would lose settings, prepared statements and
// notifications.
func TestPoolerInTransactionModeIsRefused(t *testing.T) {
	s := newStack(t)
	for mode, role := range map[string]string{"transaction": "api", "statement": "worker"} {
		url := s.pooler(mode)
		p := s.start(role, env{"FORGERUN_DATABASE_URL": url})
		require.Equal(t, 1, p.exitCode(), "%s in mode %s", role, mode)
		require.Contains(t, p.log.String(), "pool_mode = session")
		doctor := s.start("doctor", env{"FORGERUN_DATABASE_URL": url})
		require.Equal(t, 1, doctor.exitCode())
		require.Contains(t, doctor.stdout.String(), "is a pooler in transaction mode")
	}
}
