package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

// oldestPostgres is the oldest major version that the Postgres project still maintains.
const oldestPostgres = 14

var postgresObstacles = adviceFor{ //nolint:gosec // the address is an example
	repo.ErrBadURL: "write FORGERUN_DATABASE_URL as postgres://user:password@host:5432/database, with the password percent-encoded",
	repo.ErrAway:   "start Postgres, or correct host and port in FORGERUN_DATABASE_URL; a firewall may be in between",
	repo.ErrSilent: "check the server: it hangs, is overloaded, or a firewall drops the packets",
	repo.ErrClosed: "look at the server's log; the host and port in FORGERUN_DATABASE_URL may belong to a proxy without a server",
	repo.ErrBusy: "wait if the server is starting or stopping; if it has no free connections, raise max_connections " +
		"or lower pool_max_conns in FORGERUN_DATABASE_URL",
	repo.ErrLogin:      "correct user and password in FORGERUN_DATABASE_URL, or allow the user in pg_hba.conf",
	repo.ErrNoDatabase: "create it (createdb), or correct the name in FORGERUN_DATABASE_URL",
	repo.ErrTLS:        "set sslmode in FORGERUN_DATABASE_URL: require or verify-full (with sslrootcert), or disable if the server has no TLS",
	repo.ErrPooled:     "set the pooler to session mode (pool_mode = session), or point FORGERUN_DATABASE_URL to Postgres itself",
	repo.ErrUnread:     "look at the server's log",
}

func (fs *Findings) judgePostgres(role string, i repo.Inspection, err error) {
	if err != nil {
		postgresObstacles.judge(fs, "Postgres", i.Place, "FORGERUN_DATABASE_URL", err)
		return
	}
	found := i.VersionName + " at " + i.Place
	fs.Judge("Postgres version",
		Fail(i.Version/10_000 < oldestPostgres, fmt.Sprintf("%s, but the oldest supported version is %d", found, oldestPostgres),
			"upgrade the server"),
		OK(found))
	fs.judgeSchema(i)
	fs.judgePrivileges(i)
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		fs.Judge("Postgres "+name,
			Fail(i.Settings[name] == "off", "off: a crash loses jobs that were acknowledged",
				"ALTER SYSTEM SET "+name+" = on; SELECT pg_reload_conf(); and look for a setting of the user or database (\\drds in psql)"),
			OK(i.Settings[name]))
	}
	fs.Judge("Postgres writes",
		Fail(i.IsStandby, "refused: the server is a standby",
			"point FORGERUN_DATABASE_URL to the primary, or name all servers and add target_session_attrs=read-write"),
		Fail(i.Settings["default_transaction_read_only"] == "on", "refused: default_transaction_read_only is on",
			"turn it off where it was set: for the server, the database or the user (\\drds in psql shows the last two)"),
		OK("accepted: the server is a primary and not read-only"))
	fs.Judge("Postgres encoding",
		Fail(i.Encoding != "UTF8", i.Encoding+": it cannot store every text that clients send",
			"create the database with: createdb -E UTF8 -T template0 NAME"),
		OK(i.Encoding))
	fs.judgeConnections(role, i)
	fs.judgeTransactions(i.Writing)
	fs.judgeClock("Postgres clock", i.ClockOffset, i.RoundTrip)
}

// Doctor reports writing transactions that are older than oldTransaction. Transactions of the service take milliseconds.
const oldTransaction = time.Second

func (fs *Findings) judgeTransactions(t *repo.Transaction) {
	const what, waits = "Postgres transactions", ": it blocks clients' event streams and vacuum"
	if t == nil || t.Age < oldTransaction {
		fs.Judge(what, OK("no transaction has been writing for a second or longer"))
		return
	}
	fs.Judge(what,
		Warn(t.PID == 0,
			fmt.Sprintf("a transaction of user %s in database %s was prepared %v ago, as %q", t.User, t.Database, round(t.Age), t.Named)+waits,
			"end it with COMMIT PREPARED or ROLLBACK PREPARED, in that database"),
		Warn(true,
			fmt.Sprintf("pid %d (user %s, database %s, application %q) has been writing for %v",
				t.PID, t.User, t.Database, t.Named, round(t.Age))+waits,
			fmt.Sprintf("let the transaction commit, or end it: SELECT pg_terminate_backend(%d); "+
				"idle_in_transaction_session_timeout prevents such transactions", t.PID)))
}

func (fs *Findings) judgeSchema(i repo.Inspection) {
	found := fmt.Sprintf("version %d", i.SchemaVersion)
	differs := fmt.Sprintf("%s; this program needs %d", found, i.NeededVersion)
	fs.Judge("Postgres schema",
		Fail(i.FormerSchema, "created by a program before version 0.1.0, and cannot be migrated", "use a new, empty database"),
		Fail(i.SchemaVersion == 0 && len(i.MissingPrivileges) > 0, "the schema version cannot be read", "grant the user the privileges below"),
		Fail(i.SchemaVersion == 0, "none", "run 'forgerun migrate' with the FORGERUN_DATABASE_URL of a user who may create tables; "+
			"if the tables exist, but this user cannot see them, grant it USAGE on their schema, or add that to its search_path"),
		Fail(i.SchemaVersion < i.NeededVersion, differs, "run this version's 'forgerun migrate' before you upgrade the other roles"),
		Warn(i.SchemaVersion > i.NeededVersion, differs+", but also works with the newer one",
			"upgrade this program to the version that created the schema"),
		OK(found))
}

func (fs *Findings) judgePrivileges(i repo.Inspection) {
	const shown = 3
	list := strings.Join(i.MissingPrivileges[:min(shown, len(i.MissingPrivileges))], ", ")
	if more := len(i.MissingPrivileges) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	migrate := "run 'forgerun migrate' as a user with that privilege"
	if strings.HasPrefix(i.MigratorLacks, "CREATE") {
		migrate += fmt.Sprintf(", or, as the owner of the schema: GRANT %s TO %q", i.MigratorLacks, i.User)
	}
	fs.Judge("Postgres privileges",
		Fail(list != "", i.User+" lacks "+list,
			fmt.Sprintf("as the owner of the tables: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %q", i.Schema, i.User)),
		Warn(i.SchemaVersion < i.NeededVersion && i.MigratorLacks != "", i.User+" cannot migrate: it lacks "+i.MigratorLacks, migrate),
		Case{i.SchemaVersion > 0, Healthy, i.User + " may read and write all tables", ""})
}

// extraConnections is the number of connections that a process of each role opens besides its pool.
var extraConnections = map[string]int{"api": 2, "worker": 2, "deliverer": 1, "dev": 3}

func (fs *Findings) judgeConnections(role string, i repo.Inspection) {
	own := i.PoolSize + extraConnections[role]
	room := i.Usable / own
	found := fmt.Sprintf("%d for this user (max_connections %s), %d in use; a process takes up to %d: room for %d processes",
		i.Usable, i.Settings["max_connections"], i.Connections, own, room)
	const advice = "raise max_connections (this needs a restart of Postgres), raise the connection limit of the user or database, or lower " +
		"pool_max_conns in FORGERUN_DATABASE_URL (not below 20)"
	fs.Judge("Postgres connections",
		Fail(room == 0, found, advice),
		Warn(room < 3 && role != "dev", found+", which is less than one process of each role", advice),
		OK(found))
}

// Doctor reports jobs that have been due for longer than longDue. If Redis lost a job's task, the leader enqueues the job again within this
// time.
const longDue = time.Minute

// JudgeState judges workers, waiting jobs and the leader.
func (fs *Findings) JudgeState(s *repo.State) {
	found := fmt.Sprintf("%d alive, room for %d jobs at once", s.Workers, s.Slots)
	due := s.OldestDue.Round(time.Second)
	if s.OldestDue > longDue {
		found += fmt.Sprintf(", holding %d now; the oldest due job has waited for %v", s.Held, due)
	}
	fs.Judge("workers",
		Warn(s.Workers == 0 && s.OldestDue > 0, fmt.Sprintf("none is alive, and jobs are waiting, the oldest for %v", due),
			"start 'forgerun worker'; if a worker is running, its log says why it has no lease"),
		Warn(s.Workers == 0, "none is alive: jobs would wait", "start 'forgerun worker'"),
		Warn(s.OldestDue > longDue && s.Held < s.Slots && !s.Moving, found+", and no job was started in the last minute",
			"check the findings about Redis and the leader, then the logs of the workers and of the leader"),
		OK(found))
	fs.Judge("Postgres clock steps",
		Warn(s.Ahead, "jobs or workers have times in the future: the clock was ahead, and was set back",
			"the leader corrects these times within seconds, or its log says why not; adjust the machine's clock gradually, not in steps "+
				"(chronyd: makestep only for the first updates, such as makestep 1 3)"),
		OK("no job or worker has a time in the future"))
	fs.Judge("leader",
		Warn(s.LeaderBlocked, "the leader cannot do one of its tasks (see its metric maintenance_blocked), "+
			"and no running process can take over from it",
			"check the other findings, and the leader's log for \"maintenance failed\"; once a process without this problem runs, it takes over"),
		Warn(!s.HasLeader, "none: no process queues due jobs, recovers lost ones or removes old data",
			"start a process of any role; within 5 s a process becomes the leader, or its log says why not"),
		OK("a process is the leader"))
}

var redisObstacles = adviceFor{
	queue.ErrBadURL:     "correct FORGERUN_REDIS_URL",
	queue.ErrAway:       "start Redis, or correct the hosts in FORGERUN_REDIS_URL; until then jobs are accepted, but wait",
	queue.ErrSilent:     "check the server: it hangs, is overloaded, or a firewall drops the packets; without TLS write redis://",
	queue.ErrClosed:     "write rediss:// in FORGERUN_REDIS_URL if the server wants TLS; otherwise look at the server's log",
	queue.ErrLogin:      "write user and password into FORGERUN_REDIS_URL: redis://user:password@host:6379/0 (no user: redis://:password@...)",
	queue.ErrNoDatabase: "correct the number at the end of FORGERUN_REDIS_URL, or raise 'databases' in redis.conf",
	queue.ErrTLS:        "write redis:// if the server has no TLS, rediss:// if it has; its certificate must be valid for the host",
	queue.ErrUnread:     "let the user run INFO, GET, TIME and asynq's commands: ACL SETUSER name +@all -@dangerous +info +keys ~* &*",
}

func (fs *Findings) judgeRedis(i queue.Inspection, err error) {
	if err != nil {
		redisObstacles.judge(fs, "Redis", i.Place, "FORGERUN_REDIS_URL", err)
		return
	}
	fs.Judge("Redis", Fail(len(i.Servers) == 0, "the cluster at "+i.Place+" has no masters", "check the output of CLUSTER NODES"))
	for _, s := range i.Servers {
		name := "Redis"
		if len(i.Servers) > 1 {
			name += " " + s.Address
		}
		fs.judgeServer(name, s)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Wrong)) {
		fs.Judge("Redis key "+key, Fail(true, "holds a "+i.Wrong[key]+": the queue cannot use it",
			"no action is needed while a process runs: the leader removes this key within seconds; give each program its own Redis database"))
	}
	for _, paused := range i.Paused {
		fs.Judge("Redis queue "+paused, Warn(true, "paused: no process takes tasks from this queue; resume it with this command",
			"redis-cli -u \"$FORGERUN_REDIS_URL\" DEL 'asynq:{"+paused+"}:paused'"))
	}
}

// Memory use above this fraction of maxmemory is reported.
const fullMemory = 0.8

func (fs *Findings) judgeServer(name string, s queue.ServerFacts) {
	if s.Version == "" {
		fs.Judge(name+" version", Warn(true,
			s.Address+" reports no version: it is an imitation of Redis, which dev uses if Redis is not installed",
			"use Redis 6.2 or Valkey in production"))
		return
	}
	found := map[string]string{"redis": "Redis", "valkey": "Valkey"}[s.Product] + " " + s.Release + " at " + s.Address
	fs.Judge(name+" version",
		Fail(!atLeast(s.Version, 6, 2), found+", but the oldest supported version is 6.2", "upgrade the server"), OK(found))
	fs.Judge(name+" role",
		Fail(s.Role == "slave", "replica: it accepts no writes", "point FORGERUN_REDIS_URL to the master, or use redis-sentinel://"),
		OK(s.Role))
	const untold = "not checked: this server does not report the setting"
	// Without persistence, a restart of Redis loses tasks and entries of the outcome stream. This is only a warning, because lost tasks are
	// enqueued again from Postgres.
	fs.Judge(name+" persistence",
		Case{s.AppendOnly == "", Healthy, untold, ""},
		Warn(s.AppendOnly == "0", "appendonly is no: a restart loses the queue, which the leader refills, and all of the outcome stream",
			"CONFIG SET appendonly yes, and the same in redis.conf"),
		Case{s.AppendFsync == "", Healthy, "appendonly is yes; appendfsync is unknown, because this server forbids CONFIG", ""},
		Warn(s.AppendFsync == "no", "appendfsync is no: a crash of the machine loses up to half a minute of the queue, and of the outcome stream",
			"CONFIG SET appendfsync everysec, and the same in redis.conf"),
		OK("appendonly is yes, appendfsync is "+s.AppendFsync))
	const advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
	fs.Judge(name+" maxmemory-policy",
		Case{s.Policy == "noeviction", Healthy, s.Policy, ""},
		Case{s.Policy == "", Healthy, untold, ""},
		Fail(s.MaxMemory > 0, s.Policy+": Redis silently drops tasks, counters and outcomes when it is full", advice),
		Warn(true, s.Policy+": harmless only while maxmemory is not set", advice))
	used := fmt.Sprintf("%d MiB used", s.Used>>20)
	ofMax := fmt.Sprintf("%s of %d MiB", used, s.MaxMemory>>20)
	fs.Judge(name+" memory",
		Case{s.MaxMemory == 0, Healthy, used + ", no maxmemory", ""},
		Warn(float64(s.Used) > fullMemory*float64(s.MaxMemory), ofMax+": a full Redis refuses tasks",
			"raise maxmemory, or look for other programs' data in Redis (redis-cli --bigkeys)"),
		OK(ofMax))
	if s.RoundTrip > 0 {
		fs.judgeClock(name+" clock", s.ClockOffset, s.RoundTrip)
	}
}

// atLeast compares the first two numbers of a version such as 7.0.15.
func atLeast(version string, major, minor int) bool {
	var first, second int
	_, _ = fmt.Sscanf(version, "%d.%d", &first, &second) // unreadable parts are 0
	return first > major || first == major && second >= minor
}
