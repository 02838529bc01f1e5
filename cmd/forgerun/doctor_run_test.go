package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/doctor"

	"github.com/forgerun/forgerun/repo/repotest"
)

// doctor runs the command in this process; every secret of the environment is
// looked for in what it prints.
func (s *stack) doctor(environment env, args ...string) (code int, report string) {
	s.t.Helper()
	all := merge(s.env, environment)
	var environ []string
	for name, value := range all {
		environ = append(environ, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	code = run(s.ctx(), append([]string{"doctor"}, args...), func(name string) string { return all[name] }, environ, &stdout, &stderr)
	require.Empty(s.t, stderr.String())
	for _, secret := range append(s.knownSecrets(), passwordOf(all["FORGERUN_DATABASE_URL"]), passwordOf(all["FORGERUN_REDIS_URL"])) {
		if secret != "" {
			require.NotContains(s.t, stdout.String(), secret)
		}
	}
	return code, stdout.String()
}

func passwordOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "" // a bad address on purpose
	}
	password, _ := u.User.Password()
	return password
}

func TestDoctorFindsAHealthyStackHealthy(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, repotest.Server(t).URL(), env{
		"FORGERUN_OPEN_REGISTRATION": "false", "FORGERUN_WEBHOOK_ALLOW_PRIVATE": "false", "FORGERUN_PUBLIC_URL": "https://forgerun.example.com",
	})
	s.startLeader()
	s.startWorker()
	eventually(t, "the epoch is in Redis", func() bool { return s.rdb.Exists(s.ctx(), "forgerun:epoch").Val() == 1 })
	p := startProc(t, s.env, s.knownSecrets, "doctor")
	require.Zero(t, p.exitCode(), p.stdout)
	report := p.stdout.String()
	require.NotContains(t, report, passwordOf(s.databaseURL))
	require.Contains(t, report, "\n0 FAIL, 0 warn, ")
	for _, line := range []string{"ok    configuration: valid for api", "ok    Postgres fsync: on",
		"ok    Redis persistence: appendonly is yes", "ok    workers: 1 alive, room for 4", "ok    leader: there is one", "in both stores"} {
		require.Contains(t, report, line)
	}

	code, report := s.doctor(nil, "worker", "--json")
	require.Zero(t, code, report)
	var all []map[string]string
	require.NoError(t, json.Unmarshal([]byte(report), &all))
	require.Equal(t, map[string]string{"level": "ok", "what": "configuration", "found": "valid for worker"}, all[0])
}

// Everything that is wrong is reported at once.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, emptyDatabase(t), env{"FORGERUN_TIMESCALE": "1"})
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "appendonly", "no").Err())
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "maxmemory", "100mb").Err())
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "maxmemory-policy", "allkeys-lru").Err())
	code, report := s.doctor(nil, "api")
	require.Equal(t, 1, code)
	for _, line := range []string{
		"warn  configuration: FORGERUN_TIMESCALE is no variable",
		"warn  registration: open",
		"FAIL  Postgres schema: none",
		"FAIL  Postgres fsync: off", // the server of the tests
		"warn  Redis persistence: appendonly is no",
		"FAIL  Redis maxmemory-policy: allkeys-lru",
	} {
		require.Contains(t, report, line)
	}
	require.Zero(t, s.count(`SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`), "nothing is written")
	require.Zero(t, s.rdb.DBSize(s.ctx()).Val())

	code, report = s.doctor(env{"FORGERUN_MAX_RETRIES": "few"}, "worker")
	require.Equal(t, 2, code)
	require.Contains(t, report, `FAIL  configuration: FORGERUN_MAX_RETRIES="few": a whole number from 0 to 100`)
	require.Contains(t, report, "FAIL  Postgres schema: none", "looked at all the same")
}

func TestDoctorWithoutStores(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	wrong, err := url.Parse(s.databaseURL)
	require.NoError(t, err)
	wrong.User = url.UserPassword("forgerun", "planted-secret")
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "requirepass", "right").Err())
	redis := fmt.Sprintf("redis://:planted-secret@127.0.0.1:%d", s.redis.Port())
	code, report := s.doctor(env{"FORGERUN_DATABASE_URL": wrong.String(), "FORGERUN_REDIS_URL": redis})
	require.Equal(t, 1, code)
	require.Contains(t, report, "refuses the login: password authentication failed")
	require.Contains(t, report, "refuses the login: WRONGPASS")

	code, report = s.doctor(env{"FORGERUN_DATABASE_URL": "postgres://u:planted-secret@127.0.0.1:1/x",
		"FORGERUN_REDIS_URL": "redis://:planted-secret@127.0.0.1:1"})
	require.Equal(t, 1, code)
	require.Contains(t, report, "FAIL  Postgres: at 127.0.0.1:1/x does not accept connections -> ")
	require.Contains(t, report, "FAIL  Redis: at 127.0.0.1:1 does not accept connections -> ")

	code, report = s.doctor(env{"FORGERUN_DATABASE_URL": "postgres://u:planted%secret@db/x", "FORGERUN_REDIS_URL": "http://:planted-secret@x"})
	require.Equal(t, 1, code)
	require.NotContains(t, report, "planted")
	require.Contains(t, report, "FAIL  Postgres: (FORGERUN_DATABASE_URL) has an address that cannot be read")
	require.Contains(t, report, "FAIL  Redis: (FORGERUN_REDIS_URL) has an address that cannot be read")
}

func TestDoctorWithHangingStores(t *testing.T) {
	t.Parallel()
	postgres := repotest.Server(t)
	s := newStackOn(t, postgres.URL())
	require.NoError(t, syscall.Kill(postgres.PID(), syscall.SIGSTOP))
	t.Cleanup(func() { require.NoError(t, syscall.Kill(postgres.PID(), syscall.SIGCONT)) })
	require.NoError(t, s.redis.Pause())
	began := time.Now()
	code, report := s.doctor(nil)
	require.Less(t, time.Since(began), doctor.InspectTimeout+10*time.Second)
	require.Equal(t, 1, code)
	require.Equal(t, 2, strings.Count(report, "does not answer in time"), report)
}

// Nothing moves, and every part looks well on its own.
func TestDoctorFindsStuckJobs(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	require.NoError(t, s.rdb.Set(s.ctx(), "asynq:{jobs}:paused", 1, 0).Err())
	s.newUser(api).submit(api, execute("SUCCESS_FAST"))
	_, err := s.db.Exec(s.ctx(), `UPDATE jobs SET run_at = run_at - interval '3 minutes'`)
	require.NoError(t, err)
	_, report := s.doctor(nil)
	require.Regexp(t, `warn  workers: 1 alive, room for 4 jobs at once, 0 of it taken; a job has been due for 3m\d+s, and none was started`,
		report)
	require.Contains(t, report, "warn  Redis queue jobs: paused")
}

func TestDoctorFindsAnotherMasterKey(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, env{"FORGERUN_PUBLIC_URL": "https://forgerun.example.com"})
	s.startWebhooks()
	eventually(t, "there is a signing key", func() bool { return s.count(`SELECT count(*) FROM signing_keys`) == 1 })
	other := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32)))
	for _, role := range []string{"api", "webhooks"} {
		_, report := s.doctor(nil, role)
		require.Contains(t, report, "ok    master key: fits the signing keys in the database (1)")
		code, report := s.doctor(env{"FORGERUN_MASTER_KEY": other}, role)
		require.Equal(t, 1, code)
		require.Regexp(t, `FAIL  master key: the signing key \S+ cannot be used: it was encrypted under another FORGERUN_MASTER_KEY`, report)
		require.NotContains(t, report, other)
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM signing_keys`), "nothing is written")
}

// dev's own stores are found where a running dev notes them.
func TestDoctorOfDev(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	dir := t.TempDir()
	own := env{"FORGERUN_DATABASE_URL": "", "FORGERUN_REDIS_URL": "", "FORGERUN_DATA_DIR": dir}
	code, report := s.doctor(own, "dev")
	require.Zero(t, code)
	require.Contains(t, report, "ok    Postgres: dev starts its own; it does not run now")
	noted := fmt.Sprintf(`{"database_url": %q, "redis_url": %q}`, s.databaseURL, s.redis.URL())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dev.json"), []byte(noted), 0o600))
	code, report = s.doctor(own, "dev")
	require.Equal(t, 1, code, "fsync is off on the server of the tests")
	require.Contains(t, report, "FAIL  Postgres fsync: off")
	require.Contains(t, report, fmt.Sprintf("at 127.0.0.1:%d", s.redis.Port()))
}

func TestDoctorUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"doctor", "migrate"}, {"doctor", "api", "worker"}, {"doctor", "--yaml"}} {
		code, stdout, stderr := runWith(t, required, args...)
		require.Equal(t, 2, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "doctor [--json] [ROLE]")
	}
	code, stdout, _ := runWith(t, nil, "doctor", "--help")
	require.Zero(t, code)
	require.Contains(t, stdout, "forgerun doctor")
	code, stdout, _ = runWith(t, nil, "doctor")
	require.Equal(t, 2, code)
	require.Contains(t, stdout, "FORGERUN_DATABASE_URL is required")
}
