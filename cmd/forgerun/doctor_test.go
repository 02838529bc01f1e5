package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/doctor"
	"github.com/forgerun/forgerun/repo"
)

// requireOnly requires exactly one unhealthy finding, with this severity and these words. If `want` is Healthy, all findings must be
// healthy.
func requireOnly(t *testing.T, all doctor.Findings, want doctor.Severity, words ...string) {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(all), func(f doctor.Finding) bool { return f.Level == doctor.Healthy })
	if want == doctor.Healthy {
		require.Empty(t, found)
		found = all
	} else {
		require.Len(t, found, 1)
		require.Equal(t, want, found[0].Level)
		require.NotEmpty(t, found[0].Advice)
	}
	for _, word := range words {
		require.Contains(t, fmt.Sprint(found), word)
	}
}

func TestDoctorJudgesTheConfiguration(t *testing.T) {
	t.Parallel()
	good := env{
		"FORGERUN_DATABASE_URL": "postgres://db/x", "FORGERUN_REDIS_URL": "redis://cache", "FORGERUN_MASTER_KEY": masterKey,
		"FORGERUN_PUBLIC_URL": "https://forgerun.example.com", "FORGERUN_ADMIN_ADDR": "127.0.0.1:8081",
	}
	for _, c := range []struct {
		role  string
		env   env
		level doctor.Severity
		words []string
	}{
		{"api", nil, doctor.Healthy, []string{"valid for api"}},
		{"worker", nil, doctor.Healthy, []string{"lease: 30s, heartbeat every 5s, statements up to 5s"}},
		{"worker", env{"FORGERUN_PUBLIC_URL": ""}, doctor.Healthy, nil},
		{"dev", env{"FORGERUN_PUBLIC_URL": "", "FORGERUN_DATABASE_URL": "", "FORGERUN_REDIS_URL": ""}, doctor.Healthy, nil},
		{"api", env{"FORGERUN_MAX_RETRIES": "few"}, doctor.Failing, []string{`FORGERUN_MAX_RETRIES="few": must be a whole number`}},
		{"deliverer", env{"FORGERUN_MASTER_KEY": ""}, doctor.Failing, []string{"FORGERUN_MASTER_KEY is required"}},
		{"worker", env{"FORGERUN_ADMIN_ADDR": ""}, doctor.Healthy, []string{"127.0.0.1:8082 is on loopback"}},
		{"api", env{"FORGERUN_ADMIN_ADDR": "0.0.0.0:8081", "FORGERUN_ADMIN_TOKEN": "0123456789abcdef"}, doctor.Warning,
			[]string{"0.0.0.0:8081 is not on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": ""}, doctor.Warning, []string{"http://127.0.0.1:8080"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "https://localhost:8443"}, doctor.Warning, []string{"on loopback"}},
		{"deliverer", env{"FORGERUN_PUBLIC_URL": "http://[::1]"}, doctor.Warning, []string{"on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "http://forgerun.example.com"}, doctor.Warning, []string{"not https"}},
		{"api", env{"FORGERUN_OPEN_REGISTRATION": "true", "FORGERUN_WEBHOOK_CHALLENGE": "true"}, doctor.Warning,
			[]string{"FORGERUN_OPEN_REGISTRATION=false"}},
		{"deliverer", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, doctor.Warning, []string{"FORGERUN_WEBHOOK_ALLOW_PRIVATE=false"}},
		{"worker", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, doctor.Healthy, nil},
		{"worker", env{"FORGERUN_DB_TIMEOUT": "25s"}, doctor.Warning, []string{"FORGERUN_LEASE_TIMEOUT"}},
		{"api", env{"FORGERUN_MASTER_KEY": ""}, doctor.Warning, []string{"cannot register webhooks or rotate"}},
	} {
		environment := merge(good, c.env)
		cfg, bad := LoadConfig(c.role, func(name string) string { return environment[name] })
		var fs doctor.Findings
		judgeConfig(&fs, c.role, cfg, bad, nil)
		judgeMasterKey(&fs, c.role, cfg, &repo.State{HasWebhooks: true})
		requireOnly(t, fs, c.level, c.words...)
	}
	var fs, open, asked, few, enough, worker doctor.Findings
	judgeConfig(&fs, "api", Config{}, errors.New("bad configuration:\n  A=1: x\n  B=2: y"), []string{"FORGERUN_TIMESCALE"})
	require.Equal(t, 2, fs.Count(doctor.Failing))
	require.Equal(t, 1, fs.Count(doctor.Warning))
	require.Contains(t, fs[2].String(), "FORGERUN_TIMESCALE is not a known variable")
	require.False(t, strings.Contains(fs[0].String(), "\n"))
	judgeConsent(&open, Config{})
	requireOnly(t, open, doctor.Warning, "FORGERUN_WEBHOOK_CHALLENGE=true")
	judgeConsent(&asked, Config{WebhookChallenge: true, PublicURL: "https://forgerun.example.com"})
	requireOnly(t, asked, doctor.Healthy, "in the name of forgerun.example.com")
	judgeFiles(&few, "api", 683)
	requireOnly(t, few, doctor.Warning, "room for 683", "LimitNOFILE")
	judgeFiles(&enough, "api", fewConnections)
	requireOnly(t, enough, doctor.Healthy, "room for 2000")
	judgeFiles(&worker, "worker", 683)
	requireOnly(t, worker, doctor.Healthy)
}

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
		return ""
	}
	password, _ := u.User.Password()
	return password
}

func TestDoctorReportsAllProblems(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, emptyDatabase(t), env{"FORGERUN_TIMESCALE": "1"})
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "appendonly", "no").Err())
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "maxmemory", "100mb").Err())
	require.NoError(t, s.rdb.ConfigSet(s.ctx(), "maxmemory-policy", "allkeys-lru").Err())
	code, report := s.doctor(nil, "api")
	require.Equal(t, 1, code)
	for _, line := range []string{
		"warn  configuration: FORGERUN_TIMESCALE is not a known variable",
		"warn  registration: open",
		"FAIL  Postgres schema: none",
		"FAIL  Postgres fsync: off", // the tests' Postgres runs without fsync
		"warn  Redis persistence: appendonly is no",
		"FAIL  Redis maxmemory-policy: allkeys-lru",
	} {
		require.Contains(t, report, line)
	}
	require.Zero(t, s.count(`SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`), "nothing is written")
	require.Zero(t, s.rdb.DBSize(s.ctx()).Val())

	code, report = s.doctor(env{"FORGERUN_MAX_RETRIES": "few"}, "worker")
	require.Equal(t, 2, code)
	require.Contains(t, report, `FAIL  configuration: FORGERUN_MAX_RETRIES="few": must be a whole number from 0 to 100`)
	require.Contains(t, report, "FAIL  Postgres schema: none", "doctor examines the stores anyway")
}

func TestDoctorWithHangingStores(t *testing.T) {
	s, postgres := newStackWithPostgres(t, env{
		"FORGERUN_OPEN_REGISTRATION": "false", "FORGERUN_WEBHOOK_ALLOW_PRIVATE": "false", "FORGERUN_PUBLIC_URL": "https://forgerun.example.com",
	})
	leader, worker := s.startLeader(), s.startWorker()
	p := startProc(t, s.env, s.knownSecrets, "doctor")
	require.Zero(t, p.exitCode(), p.stdout)
	report := p.stdout.String()
	require.NotContains(t, report, passwordOf(s.databaseURL))
	require.Contains(t, report, "\n0 FAIL, 0 warn, ")
	for _, line := range []string{"ok    configuration: valid for api", "ok    Postgres fsync: on",
		"ok    Redis persistence: appendonly is yes", "ok    workers: 1 alive, room for 4", "ok    leader: a process is the leader"} {
		require.Contains(t, report, line)
	}
	code, report := s.doctor(nil, "worker", "--json")
	require.Zero(t, code, report)
	all := parsed[[]map[string]string](t, report)
	require.Equal(t, map[string]string{"level": "ok", "what": "configuration", "found": "valid for worker"}, all[0])

	leader.kill()
	worker.kill()
	require.NoError(t, syscall.Kill(postgres.PID(), syscall.SIGSTOP))
	t.Cleanup(func() { require.NoError(t, syscall.Kill(postgres.PID(), syscall.SIGCONT)) })
	require.NoError(t, s.redis.Pause())
	code, report = s.doctor(nil)
	require.Equal(t, 1, code)
	require.Equal(t, 2, strings.Count(report, "does not answer in time"), report)
}
