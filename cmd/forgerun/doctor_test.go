package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

// goodPostgres and goodRedis are facts with nothing to say about.
func goodPostgres() repo.Inspection {
	return repo.Inspection{
		Place: "db:5432/forgerun", User: "forgerun", Version: 170002, VersionName: "17.2", Encoding: "UTF8",
		PoolSize: 20, Connections: 30, Usable: 97, SchemaVersion: 3, NeededVersion: 3, RoundTrip: time.Millisecond,
		Settings: map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "default_transaction_read_only": "off",
			"autovacuum": "on", "track_counts": "on", "max_connections": "100", "data_checksums": "off",
		},
	}
}

func goodRedis() queue.ServerFacts {
	return queue.ServerFacts{
		Address: "cache:6379", Product: "redis", Version: "7.2.4", Release: "7.2.4", RunID: "run", Role: "master", AppendOnly: "1",
		AppendFsync:  "everysec",
		AppendStatus: "ok", RewriteStatus: "ok", Policy: "noeviction", Used: 7 << 20, RoundTrip: time.Millisecond,
	}
}

// only asks for the one finding that is not ok; its text must have the words.
func only(t *testing.T, all findings, want severity, words ...string) {
	t.Helper()
	var bad findings
	for _, f := range all {
		require.NotEmpty(t, f.What)
		require.NotEmpty(t, f.Found)
		require.Equal(t, f.Level != healthy, f.Advice != "", "advice for what is not well, and only for that: %v", f)
		require.NotContains(t, f.String(), "\n")
		if f.Level != healthy {
			bad = append(bad, f)
		}
	}
	if want == healthy {
		require.Empty(t, bad)
		for _, word := range words {
			require.Contains(t, fmt.Sprint(all), word)
		}
		return
	}
	require.Len(t, bad, 1)
	require.Equal(t, want, bad[0].Level)
	for _, word := range words {
		require.Contains(t, bad[0].String(), word)
	}
}

func TestDoctorJudgesPostgres(t *testing.T) {
	t.Parallel()
	set := func(name, value string) func(*repo.Inspection) {
		return func(i *repo.Inspection) { i.Settings[name] = value }
	}
	for _, c := range []struct {
		change func(*repo.Inspection)
		level  severity
		words  []string
	}{
		{func(*repo.Inspection) {}, healthy, []string{"17.2 at db:5432/forgerun", "room for 4"}},
		{func(i *repo.Inspection) { i.Version, i.VersionName = 130011, "13.11" }, failing, []string{"13.11", "14 is the oldest"}},
		{func(i *repo.Inspection) { i.Version = 140000 }, healthy, nil},
		{set("fsync", "off"), failing, []string{"fsync", "acknowledged", "ALTER SYSTEM SET fsync = on"}},
		{set("full_page_writes", "off"), failing, []string{"full_page_writes"}},
		{set("synchronous_commit", "off"), failing, []string{"synchronous_commit"}},
		{set("synchronous_commit", "local"), healthy, []string{"local"}},
		{set("synchronous_commit", "remote_apply"), healthy, nil},
		{set("autovacuum", "off"), warning, []string{"autovacuum"}},
		{set("track_counts", "off"), warning, []string{"autovacuum"}},
		{set("data_checksums", "on"), healthy, []string{"checksums: on"}},
		{set("default_transaction_read_only", "on"), failing, []string{"default_transaction_read_only"}},
		{func(i *repo.Inspection) { i.IsStandby = true }, failing, []string{"standby", "target_session_attrs"}},
		{func(i *repo.Inspection) { i.Encoding = "SQL_ASCII" }, failing, []string{"SQL_ASCII", "createdb -E UTF8"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 0 }, failing, []string{"schema: none", "forgerun migrate"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 2 }, failing, []string{"version 2, this program needs 3", "forgerun migrate"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 4 }, failing, []string{"version 4, this program needs 3", "-to 3"}},
		{func(i *repo.Inspection) {
			i.MissingPrivileges = []string{"A on a", "B on b", "C on c", "D on d", "E on e"}
		}, failing,
			[]string{"lacks A on a, B on b, C on c and 2 more", "GRANT SELECT"}},
		{func(i *repo.Inspection) { i.Usable = 65 }, warning, []string{"room for 2", "max_connections"}},
		{func(i *repo.Inspection) { i.Usable = 66 }, healthy, nil},
		{func(i *repo.Inspection) { i.Usable = 21 }, failing, []string{"room for 0"}},
		{func(i *repo.Inspection) { i.ClockOffset = -2 * time.Second }, warning, []string{"clock", "2s behind", "NTP"}},
		{func(i *repo.Inspection) { i.ClockOffset = time.Minute }, failing, []string{"clock", "1m0s ahead of"}},
		{func(i *repo.Inspection) { i.ClockOffset, i.RoundTrip = 2*time.Second, 3*time.Second }, healthy, []string{"measured to 1.5s"}},
	} {
		i := goodPostgres()
		c.change(&i)
		var fs findings
		fs.judgePostgres("api", i, nil)
		only(t, fs, c.level, c.words...)
	}
}

func TestDoctorJudgesRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*queue.ServerFacts)
		level  severity
		words  []string
	}{
		{func(*queue.ServerFacts) {}, healthy, []string{"Redis 7.2.4 at cache:6379", "appendfsync is everysec", "7 MiB used"}},
		{func(s *queue.ServerFacts) { s.Version, s.Release = "6.0.16", "6.0.16" }, failing, []string{"6.0.16", "6.2 is the oldest"}},
		{func(s *queue.ServerFacts) { s.Version, s.Release = "6.2.0", "6.2.0" }, healthy, nil},
		{func(s *queue.ServerFacts) { s.Version = "10.0.1" }, healthy, nil},
		{func(s *queue.ServerFacts) { s.Product, s.Release = "valkey", "8.1.3" }, healthy, []string{"Valkey 8.1.3"}},
		{func(s *queue.ServerFacts) { *s = queue.ServerFacts{Address: "x:1"} }, warning, []string{"imitation"}},
		{func(s *queue.ServerFacts) { s.Role = "slave" }, failing, []string{"replica", "redis-sentinel://"}},
		{func(s *queue.ServerFacts) { s.Loading = true }, warning, []string{"loading"}},
		{func(s *queue.ServerFacts) { s.AppendOnly, s.AppendFsync = "0", "everysec" }, warning, []string{"CONFIG SET appendonly yes"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "always" }, healthy, []string{"always"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "no" }, warning, []string{"CONFIG SET appendfsync everysec"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "" }, healthy, []string{"forbids CONFIG"}},
		{func(s *queue.ServerFacts) { s.AppendStatus = "err" }, warning, []string{"full disk"}},
		{func(s *queue.ServerFacts) { s.RewriteStatus = "err" }, warning, []string{"full disk"}},
		{func(s *queue.ServerFacts) { s.Policy = "allkeys-lru" }, warning, []string{"allkeys-lru", "noeviction"}},
		{func(s *queue.ServerFacts) { s.Policy, s.MaxMemory = "allkeys-lru", 1<<30 }, failing, []string{"allkeys-lru", "noeviction"}},
		{func(s *queue.ServerFacts) { s.Policy = "" }, healthy, []string{"not checked"}},
		{func(s *queue.ServerFacts) { s.MaxMemory = 8 << 20 }, warning, []string{"7 MiB used of 8 MiB"}},
		{func(s *queue.ServerFacts) { s.MaxMemory = 80 << 20 }, healthy, []string{"7 MiB used of 80 MiB"}},
		{func(s *queue.ServerFacts) { s.Evicted = 5 }, warning, []string{"5 keys"}},
		{func(s *queue.ServerFacts) { s.ClockOffset = 31 * time.Second }, failing, []string{"clock"}},
	} {
		s := goodRedis()
		c.change(&s)
		var fs findings
		fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{s}}, nil)
		only(t, fs, c.level, c.words...)
	}
	var fs findings
	fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{goodRedis(), goodRedis()}}, nil)
	require.Contains(t, fmt.Sprint(fs), "Redis cache:6379 role", "which one of a cluster")
	fs = nil
	fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{goodRedis()}, Paused: []string{"jobs"}}, nil)
	only(t, fs, warning, "Redis queue jobs: paused", "DEL 'asynq:{jobs}:paused'")
	fs = nil
	fs.judgeRedis(queue.Inspection{Place: "a:1"}, nil)
	only(t, fs, failing, "no masters")
}

// Every reason why there is nothing to see is one sentence, with advice.
func TestDoctorKnowsEveryObstacle(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		repo.ErrBadURL, repo.ErrAway, repo.ErrSilent, repo.ErrClosed, repo.ErrBusy, repo.ErrLogin, repo.ErrNoDatabase, repo.ErrTLS,
		repo.ErrUnread,
	} {
		var fs findings
		fs.judgePostgres("api", repo.Inspection{Place: "db:5432/x"}, fmt.Errorf("%w: words", err))
		only(t, fs, failing, "Postgres: at db:5432/x "+err.Error()+": words -> ")
	}
	for _, err := range []error{
		queue.ErrBadURL, queue.ErrAway, queue.ErrSilent, queue.ErrClosed, queue.ErrLogin, queue.ErrNoDatabase, queue.ErrTLS, queue.ErrUnread,
	} {
		var fs findings
		fs.judgeRedis(queue.Inspection{Place: "cache:6379"}, fmt.Errorf("%w: words", err))
		only(t, fs, failing, "Redis: at cache:6379 "+err.Error()+": words -> ")
	}
}

func TestDoctorJudgesTheOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state repo.State
		redis queue.Inspection
		level severity
		words []string
	}{
		{repo.State{Workers: 2, Slots: 8, HasLeader: true, Epoch: 3, RedisRunID: "a"}, queue.Inspection{Epoch: 3, EpochRunID: "a"}, healthy,
			[]string{"2 alive, room for 8", "3 in both"}},
		{repo.State{Workers: 2, HasLeader: true, Epoch: 3, RedisRunID: "a"}, queue.Inspection{Epoch: 3, EpochRunID: "b"}, warning,
			[]string{"started again"}},
		{repo.State{Workers: 2, HasLeader: true, Epoch: 3}, queue.Inspection{}, warning, []string{"emptied"}},
		{repo.State{Workers: 2, HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 2}, warning, []string{"2 in Redis, 3 in Postgres"}},
		{repo.State{HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 3}, warning, []string{"jobs would wait"}},
		{repo.State{HasLeader: true, Epoch: 3, OldestDue: time.Second}, queue.Inspection{Epoch: 3}, warning,
			[]string{"and jobs wait, one for 1s"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 3}, warning,
			[]string{"due for 3m0s", "0 of it taken", "none was started"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, Held: 4, HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 3}, healthy,
			[]string{"due for 3m0s", "4 of it taken"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, Moving: true, HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 3},
			healthy, []string{"due for 3m0s"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: time.Minute, HasLeader: true, Epoch: 3}, queue.Inspection{Epoch: 3}, healthy, nil},
		{repo.State{Workers: 1, Epoch: 3}, queue.Inspection{Epoch: 3}, warning, []string{"leader: none"}},
	} {
		var fs findings
		fs.judgeState(c.state)
		fs.judgeEpoch(c.state, c.redis)
		only(t, fs, c.level, c.words...)
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
		level severity
		words []string
	}{
		{"api", nil, healthy, []string{"valid for api"}},
		{"worker", nil, healthy, []string{"lease: 30s, heartbeat every 5s, statements up to 5s"}},
		{"webhooks", nil, healthy, nil},
		{"worker", env{"FORGERUN_PUBLIC_URL": ""}, healthy, nil},
		{"dev", env{"FORGERUN_PUBLIC_URL": "", "FORGERUN_DATABASE_URL": "", "FORGERUN_REDIS_URL": ""}, healthy, nil},
		{"api", env{"FORGERUN_MAX_RETRIES": "few"}, failing, []string{`FORGERUN_MAX_RETRIES="few": a whole number`}},
		{"webhooks", env{"FORGERUN_MASTER_KEY": ""}, failing, []string{"FORGERUN_MASTER_KEY is required"}},
		{"worker", env{"FORGERUN_ADMIN_ADDR": ""}, warning, []string{"no metrics"}},
		{"api", env{"FORGERUN_ADMIN_ADDR": "0.0.0.0:8081", "FORGERUN_ADMIN_TOKEN": "0123456789abcdef"}, warning,
			[]string{"0.0.0.0:8081 is not on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": ""}, warning, []string{"http://127.0.0.1:8080"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "https://localhost:8443"}, warning, []string{"on loopback"}},
		{"webhooks", env{"FORGERUN_PUBLIC_URL": "http://[::1]"}, warning, []string{"on loopback"}},
		{"api", env{"FORGERUN_PUBLIC_URL": "http://forgerun.example.com"}, warning, []string{"not https"}},
		{"api", env{"FORGERUN_OPEN_REGISTRATION": "true"}, warning, []string{"FORGERUN_OPEN_REGISTRATION=false"}},
		{"webhooks", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, warning, []string{"FORGERUN_WEBHOOK_ALLOW_PRIVATE=false"}},
		{"worker", env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true"}, healthy, nil},
		{"worker", env{"FORGERUN_HEARTBEAT_INTERVAL": "9s"}, warning, []string{"FORGERUN_HEARTBEAT_INTERVAL"}},
		{"worker", env{"FORGERUN_DB_TIMEOUT": "25s"}, warning, []string{"FORGERUN_LEASE_TIMEOUT"}},
		{"webhooks", env{"FORGERUN_SIGNING_KEY_FILE": "/nowhere"}, failing, []string{"/nowhere cannot be read"}},
		{"webhooks", env{"FORGERUN_SIGNING_KEY_FILE": "doctor_test.go"}, healthy, []string{"can be read"}},
		{"api", env{"FORGERUN_MASTER_KEY": ""}, warning, []string{"cannot register webhooks nor rotate"}},
	} {
		environment := merge(good, c.env)
		cfg, bad := LoadConfig(c.role, func(name string) string { return environment[name] })
		var fs findings
		fs.judgeConfig(c.role, cfg, bad, nil)
		fs.judgeMasterKey(c.role, cfg, &repo.State{HasWebhooks: true})
		only(t, fs, c.level, c.words...)
	}
	var fs findings
	fs.judgeConfig("api", Config{}, errors.New("bad configuration:\n  A=1: x\n  B=2: y"), []string{"FORGERUN_TIMESCALE"})
	require.Equal(t, 2, fs.count(failing))
	require.Equal(t, 1, fs.count(warning))
	require.Contains(t, fs[2].String(), "FORGERUN_TIMESCALE is no variable")
	require.False(t, strings.Contains(fs[0].String(), "\n"))
}
