package doctor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

func goodPostgres() repo.Inspection {
	return repo.Inspection{
		Place: "db:5432/forgerun", User: "forgerun", Version: 170002, VersionName: "17.2", Encoding: "UTF8",
		PoolSize: 20, Connections: 30, Usable: 97, SchemaVersion: 3, NeededVersion: 3, RoundTrip: time.Millisecond,
		Settings: map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "default_transaction_read_only": "off",
			"max_connections": "100",
		},
	}
}

func goodRedis() queue.ServerFacts {
	return queue.ServerFacts{
		Address: "cache:6379", Product: "redis", Version: "7.2.4", Release: "7.2.4", RunID: "run", Role: "master", AppendOnly: "1",
		AppendFsync: "everysec", Policy: "noeviction", Used: 7 << 20, RoundTrip: time.Millisecond,
	}
}

func only(t *testing.T, all Findings, want Severity, words ...string) {
	t.Helper()
	var bad Findings
	for _, f := range all {
		require.NotEmpty(t, f.What)
		require.NotEmpty(t, f.Found)
		require.Equal(t, f.Level != Healthy, f.Advice != "", "only problems have advice: %v", f)
		require.NotContains(t, f.String(), "\n")
		if f.Level != Healthy {
			bad = append(bad, f)
		}
	}
	if want == Healthy {
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
		level  Severity
		words  []string
	}{
		{func(*repo.Inspection) {}, Healthy, []string{"17.2 at db:5432/forgerun", "room for 4"}},
		{func(i *repo.Inspection) { i.Version, i.VersionName = 130011, "13.11" }, Failing, []string{"13.11", "version is 14"}},
		{func(i *repo.Inspection) { i.Version = 140000 }, Healthy, nil},
		{set("fsync", "off"), Failing, []string{"fsync", "acknowledged", "ALTER SYSTEM SET fsync = on"}},
		{set("full_page_writes", "off"), Failing, []string{"full_page_writes"}},
		{set("synchronous_commit", "off"), Failing, []string{"synchronous_commit"}},
		{set("synchronous_commit", "local"), Healthy, []string{"local"}},
		{set("synchronous_commit", "remote_apply"), Healthy, nil},
		{set("default_transaction_read_only", "on"), Failing, []string{"default_transaction_read_only"}},
		{func(i *repo.Inspection) { i.IsStandby = true }, Failing, []string{"standby", "target_session_attrs"}},
		{func(i *repo.Inspection) { i.Encoding = "SQL_ASCII" }, Failing, []string{"SQL_ASCII", "createdb -E UTF8"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 0 }, Failing, []string{"schema: none", "forgerun migrate"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 2 }, Failing, []string{"version 2; this program needs 3", "forgerun migrate"}},
		{func(i *repo.Inspection) { i.SchemaVersion, i.FormerSchema = 20, true }, Failing, []string{"before version 0.1.0", "empty database"}},
		{func(i *repo.Inspection) { i.SchemaVersion = 4 }, Warning, []string{"version 4; this program needs 3", "also works with the newer one"}},
		{func(i *repo.Inspection) {
			i.Schema, i.MissingPrivileges = `"My app"`, []string{"A on a", "B on b", "C on c", "D on d", "E on e"}
		}, Failing,
			[]string{"lacks A on a, B on b, C on c and 2 more", "GRANT SELECT", `IN SCHEMA "My app" TO`}},
		{func(i *repo.Inspection) { i.MigratorLacks = "CREATE on schema app" }, Healthy, nil}, // harmless, because no migration is due
		{func(i *repo.Inspection) { i.Usable = 65 }, Warning, []string{"room for 2", "max_connections"}},
		{func(i *repo.Inspection) { i.Usable = 66 }, Healthy, nil},
		{func(i *repo.Inspection) { i.Usable = 21 }, Failing, []string{"room for 0"}},
		{func(i *repo.Inspection) {
			i.Writing = &repo.Transaction{PID: 7, User: "u", Database: "d", Named: "psql", Age: time.Minute}
		},
			Warning, []string{"pid 7 (user u, database d", "1m0s", "pg_terminate_backend(7)"}},
		{func(i *repo.Inspection) {
			i.Writing = &repo.Transaction{User: "u", Database: "d", Named: "gid", Age: time.Minute}
		},
			Warning, []string{`"gid"`, "ROLLBACK PREPARED"}},
		{func(i *repo.Inspection) { i.ClockOffset = -2 * time.Second }, Warning, []string{"clock", "2s behind", "NTP"}},
		{func(i *repo.Inspection) { i.ClockOffset = time.Minute }, Failing, []string{"clock", "1m0s ahead of"}},
		{func(i *repo.Inspection) { i.ClockOffset, i.RoundTrip = 2*time.Second, 3*time.Second }, Healthy, []string{"uncertain by up to 1.5s"}},
	} {
		i := goodPostgres()
		c.change(&i)
		var fs Findings
		fs.judgePostgres("api", i, nil)
		only(t, fs, c.level, c.words...)
	}
}

func TestDoctorJudgesRedis(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*queue.ServerFacts)
		level  Severity
		words  []string
	}{
		{func(*queue.ServerFacts) {}, Healthy, []string{"Redis 7.2.4 at cache:6379", "appendfsync is everysec", "7 MiB used"}},
		{func(s *queue.ServerFacts) { s.Version, s.Release = "6.0.16", "6.0.16" }, Failing, []string{"6.0.16", "version is 6.2"}},
		{func(s *queue.ServerFacts) { s.Version, s.Release = "6.2.0", "6.2.0" }, Healthy, nil},
		{func(s *queue.ServerFacts) { s.Version = "10.0.1" }, Healthy, nil},
		{func(s *queue.ServerFacts) { s.Product, s.Release = "valkey", "8.1.3" }, Healthy, []string{"Valkey 8.1.3"}},
		{func(s *queue.ServerFacts) { *s = queue.ServerFacts{Address: "x:1"} }, Warning, []string{"imitation"}},
		{func(s *queue.ServerFacts) { s.Role = "slave" }, Failing, []string{"replica", "redis-sentinel://"}},
		{func(s *queue.ServerFacts) { s.AppendOnly, s.AppendFsync = "0", "everysec" }, Warning, []string{"CONFIG SET appendonly yes"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "always" }, Healthy, []string{"always"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "no" }, Warning, []string{"CONFIG SET appendfsync everysec"}},
		{func(s *queue.ServerFacts) { s.AppendFsync = "" }, Healthy, []string{"forbids CONFIG"}},
		{func(s *queue.ServerFacts) { s.Policy = "allkeys-lru" }, Warning, []string{"allkeys-lru", "noeviction"}},
		{func(s *queue.ServerFacts) { s.Policy, s.MaxMemory = "allkeys-lru", 1<<30 }, Failing, []string{"allkeys-lru", "noeviction"}},
		{func(s *queue.ServerFacts) { s.Policy = "" }, Healthy, []string{"not checked"}},
		{func(s *queue.ServerFacts) { s.MaxMemory = 8 << 20 }, Warning, []string{"7 MiB used of 8 MiB"}},
		{func(s *queue.ServerFacts) { s.MaxMemory = 80 << 20 }, Healthy, []string{"7 MiB used of 80 MiB"}},
		{func(s *queue.ServerFacts) { s.ClockOffset = 31 * time.Second }, Failing, []string{"clock"}},
	} {
		s := goodRedis()
		c.change(&s)
		var fs Findings
		fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{s}}, nil)
		only(t, fs, c.level, c.words...)
	}
	var fs Findings
	fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{goodRedis(), goodRedis()}}, nil)
	require.Contains(t, fmt.Sprint(fs), "Redis cache:6379 role", "the address of the server in a cluster")
	fs = nil
	fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{goodRedis()}, Paused: []string{"jobs"}}, nil)
	only(t, fs, Warning, "Redis queue jobs: paused", "DEL 'asynq:{jobs}:paused'")
	fs = nil
	fs.judgeRedis(queue.Inspection{Servers: []queue.ServerFacts{goodRedis()}, Wrong: map[string]string{"asynq:{jobs}:pending": "string"}}, nil)
	only(t, fs, Failing, "Redis key asynq:{jobs}:pending: holds a string", "the leader removes this key")
	fs = nil
	fs.judgeRedis(queue.Inspection{Place: "a:1"}, nil)
	only(t, fs, Failing, "no masters")
}

func TestDoctorKnowsEveryObstacle(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		repo.ErrBadURL, repo.ErrAway, repo.ErrSilent, repo.ErrClosed, repo.ErrBusy, repo.ErrLogin, repo.ErrNoDatabase, repo.ErrTLS,
		repo.ErrPooled, repo.ErrUnread,
	} {
		var fs Findings
		fs.judgePostgres("api", repo.Inspection{Place: "db:5432/x"}, fmt.Errorf("%w: words", err))
		only(t, fs, Failing, "Postgres: at db:5432/x "+err.Error()+": words -> ")
	}
	for _, err := range []error{
		queue.ErrBadURL, queue.ErrAway, queue.ErrSilent, queue.ErrClosed, queue.ErrLogin, queue.ErrNoDatabase, queue.ErrTLS, queue.ErrUnread,
	} {
		var fs Findings
		fs.judgeRedis(queue.Inspection{Place: "cache:6379"}, fmt.Errorf("%w: words", err))
		only(t, fs, Failing, "Redis: at cache:6379 "+err.Error()+": words -> ")
	}
}

func TestDoctorJudgesTheOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state repo.State
		level Severity
		words []string
	}{
		{repo.State{Workers: 2, Slots: 8, HasLeader: true}, Healthy, []string{"2 alive, room for 8"}},
		{repo.State{Workers: 2, HasLeader: true, LeaderBlocked: true}, Warning, []string{"maintenance_blocked", "it takes over"}},
		{repo.State{Workers: 2, HasLeader: true, Ahead: true}, Warning,
			[]string{"Postgres clock steps", "was set back", "adjust the machine's clock gradually"}},
		{repo.State{HasLeader: true}, Warning, []string{"jobs would wait"}},
		{repo.State{HasLeader: true, OldestDue: time.Second}, Warning, []string{"and jobs are waiting, the oldest for 1s"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, HasLeader: true}, Warning,
			[]string{"has waited for 3m0s", "holding 0 now", "no job was started"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, Held: 4, HasLeader: true}, Healthy,
			[]string{"has waited for 3m0s", "holding 4 now"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: 3 * time.Minute, Moving: true, HasLeader: true}, Healthy, []string{"has waited for 3m0s"}},
		{repo.State{Workers: 1, Slots: 4, OldestDue: time.Minute, HasLeader: true}, Healthy, nil},
		{repo.State{Workers: 1}, Warning, []string{"leader: none"}},
	} {
		var fs Findings
		fs.JudgeState(&c.state)
		only(t, fs, c.level, c.words...)
	}
}
