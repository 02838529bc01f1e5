package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/repo"
)

// oldestPostgres is the oldest major version that is supported. The SQL needs
// what version 13 brought (xid8, gen_random_uuid); 14 is the oldest one that
// still gets fixes.
const oldestPostgres = 14

// postgresObstacles say what to do when Postgres cannot be inspected.
var postgresObstacles = []obstacle{
	{repo.ErrBadURL,
		"write FORGERUN_DATABASE_URL as postgres://user:password@host:5432/database, with special characters of the password percent-encoded"},
	{repo.ErrAway, "start Postgres, or correct host and port in FORGERUN_DATABASE_URL; a firewall may be in between"},
	{repo.ErrSilent, "look at the server: it hangs, is overloaded, or a firewall drops the packets"},
	{repo.ErrClosed,
		"look at the server's log, and whether host and port in FORGERUN_DATABASE_URL are those of Postgres and not of something " +
			"else (a proxy without a server behind it)"},
	{repo.ErrBusy, "wait if it starts or stops; if it is full, raise max_connections or lower pool_max_conns in FORGERUN_DATABASE_URL"},
	{repo.ErrLogin, "correct user and password in FORGERUN_DATABASE_URL, or let the user in by pg_hba.conf"},
	{repo.ErrNoDatabase, "create it (createdb), or correct the name in FORGERUN_DATABASE_URL"},
	{repo.ErrTLS,
		"set sslmode in FORGERUN_DATABASE_URL: require or verify-full (with sslrootcert) if the server wants TLS, disable if it has none"},
	{repo.ErrPooled, "use session mode (pool_mode = session), or Postgres itself, in FORGERUN_DATABASE_URL"},
	{repo.ErrUnread, "look at the server's log"},
}

// judgePostgres judges what Inspect found, or why it found nothing.
func (fs *Findings) judgePostgres(role string, i repo.Inspection, err error) {
	if err != nil {
		fs.judgeObstacle("Postgres", i.Place, "FORGERUN_DATABASE_URL", err, postgresObstacles)
		return
	}
	if major := i.Version / 10_000; major < oldestPostgres {
		fs.Fail("Postgres version", fmt.Sprintf("%s at %s, but %d is the oldest that is supported", i.VersionName, i.Place, oldestPostgres),
			"upgrade the server")
	} else {
		fs.OK("Postgres version", i.VersionName+" at "+i.Place)
	}
	fs.judgeSchema(i)
	fs.judgePrivileges(i)
	fs.judgeDurability(i.Settings)
	fs.judgeWritable(i)
	fs.judgeEncoding(i)
	fs.judgeConnections(role, i)
	fs.judgeTransactions(i.Writing)
	fs.judgeClock("Postgres clock", i.ClockOffset, i.RoundTrip)
}

// oldTransaction is from when on a transaction that writes should be looked at: ours take milliseconds.
const oldTransaction = time.Second

func (fs *Findings) judgeTransactions(t *repo.Transaction) {
	const what, waits = "Postgres transactions", ": event streams of clients wait for it, and so does vacuum"
	switch {
	case t == nil || t.Age < oldTransaction:
		fs.OK(what, "none of those that write is old")
	case t.PID == 0:
		fs.Warn(what, fmt.Sprintf("a transaction of %s in %s was prepared %v ago, as %q", t.User, t.Database, round(t.Age), t.Named)+waits,
			"COMMIT PREPARED or ROLLBACK PREPARED, in that database")
	default:
		found := fmt.Sprintf("pid %d (%s in %s, application %q) has been writing for %v", t.PID, t.User, t.Database, t.Named, round(t.Age))
		fs.Warn(what, found+waits,
			fmt.Sprintf("have it commit, or end it: SELECT pg_terminate_backend(%d); idle_in_transaction_session_timeout prevents it", t.PID))
	}
}

func (fs *Findings) judgeSchema(i repo.Inspection) {
	const what = "Postgres schema"
	found := fmt.Sprintf("version %d", i.SchemaVersion)
	differs := fmt.Sprintf("%s, this program needs %d", found, i.NeededVersion)
	switch {
	case i.FormerSchema:
		fs.Fail(what, "of a program before version 0.1.0, and cannot be migrated", "use a new, empty database")
	case i.SchemaVersion == 0 && len(i.MissingPrivileges) > 0:
		fs.Fail(what, "its version cannot be read", "give the user the privileges below")
	case i.SchemaVersion == 0:
		fs.Fail(what, "none",
			"run 'forgerun migrate' with the FORGERUN_DATABASE_URL of a user who may create tables; if it is there, give this user "+
				"USAGE on it, or set the search_path")
	case i.SchemaVersion < i.NeededVersion:
		fs.Fail(what, differs, "run 'forgerun migrate' of this version, before the other roles are replaced")
	case i.SchemaVersion > i.NeededVersion:
		fs.Warn(what, differs+" and works with it", "replace this program by the version that made the schema")
	default:
		fs.OK(what, found)
	}
}

func (fs *Findings) judgePrivileges(i repo.Inspection) {
	const what, shown = "Postgres privileges", 3
	missing := i.MissingPrivileges
	if len(missing) == 0 {
		switch {
		case i.SchemaVersion < i.NeededVersion && i.MigratorLacks != "":
			advice := "run 'forgerun migrate' as a user who has it"
			if strings.HasPrefix(i.MigratorLacks, "CREATE") {
				advice += fmt.Sprintf(", or, as the owner of the schema: GRANT %s TO %q", i.MigratorLacks, i.User)
			}
			fs.Warn(what, i.User+" cannot migrate: it lacks "+i.MigratorLacks, advice)
		case i.SchemaVersion > 0:
			fs.OK(what, i.User+" may read and write all tables")
		}
		return
	}
	list := strings.Join(missing[:min(shown, len(missing))], ", ")
	if more := len(missing) - shown; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	fs.Fail(what, i.User+" lacks "+list,
		fmt.Sprintf("as the owner of the tables: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %q", i.Schema, i.User))
}

// judgeDurability is about what a 202 promises.
func (fs *Findings) judgeDurability(settings map[string]string) {
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		if settings[name] == "off" {
			fs.Fail("Postgres "+name, "off: a crash loses jobs that were acknowledged",
				fmt.Sprintf("ALTER SYSTEM SET %s = on; SELECT pg_reload_conf(); and look for a setting of the user or database (\\drds in psql)", name))
		} else {
			fs.OK("Postgres "+name, settings[name])
		}
	}
}

func (fs *Findings) judgeWritable(i repo.Inspection) {
	const what = "Postgres writes"
	switch {
	case i.IsStandby:
		fs.Fail(what, "none: the server is a standby",
			"let FORGERUN_DATABASE_URL lead to the primary, or name all servers and add target_session_attrs=read-write")
	case i.Settings["default_transaction_read_only"] == "on":
		fs.Fail(what, "none: default_transaction_read_only is on",
			"set it off where it was set: for the server, the database or the user (\\drds in psql shows the latter two)")
	default:
		fs.OK(what, "accepted: a primary, not read-only")
	}
}

func (fs *Findings) judgeEncoding(i repo.Inspection) {
	if i.Encoding == "UTF8" {
		fs.OK("Postgres encoding", i.Encoding)
	} else {
		fs.Fail("Postgres encoding", i.Encoding+": texts of clients cannot all be stored",
			"create the database with: createdb -E UTF8 -T template0 NAME")
	}
}

// besidesPool is how many connections a process has beside its pool: a worker
// for its lease, an api for notifications about keys, and each for the metric that says
// whether Postgres is there.
var besidesPool = map[string]int{"api": 2, "worker": 2, "deliverer": 1, "dev": 3}

// leastProcesses is a process of each role.
const leastProcesses = 3

func (fs *Findings) judgeConnections(role string, i repo.Inspection) {
	const what = "Postgres connections"
	own := i.PoolSize + besidesPool[role]
	room := i.Usable / own
	found := fmt.Sprintf("%d for this user (max_connections %s), %d taken now; a process takes up to %d: room for %d",
		i.Usable, i.Settings["max_connections"], i.Connections, own, room)
	const advice = "raise max_connections (a restart of Postgres) or the limit of the user or database, or lower pool_max_conns " +
		"in FORGERUN_DATABASE_URL (20 at least)"
	switch {
	case room == 0:
		fs.Fail(what, found, advice)
	case room < leastProcesses && role != "dev":
		fs.Warn(what, found+", which is less than one of each role", advice)
	default:
		fs.OK(what, found)
	}
}

// judgeState reports which processes there are. They may be about to be started.
func (fs *Findings) judgeState(s repo.State) {
	fs.judgeWorkers(s)
	fs.judgeSteps(s.Ahead)
	switch {
	case s.LeaderOpen:
		fs.Warn("leader", "there is one, but a task of its does not get on (its metric maintenance_blocked says which), and nobody takes over",
			"look at the other findings, and in its log for \"maintenance failed\"; a process without that obstacle takes over by itself")
	case s.HasLeader:
		fs.OK("leader", "there is one")
	default:
		fs.Warn("leader", "none: nothing is scheduled, relayed, rescued or cleaned",
			"start any role; one of the processes leads within 5 s, or its log says why not")
	}
}

func (fs *Findings) judgeSteps(ahead bool) {
	const what = "Postgres clock steps"
	if !ahead {
		fs.OK(what, "no job or worker is from the future")
		return
	}
	fs.Warn(what, "jobs or workers were written in the future: the clock was ahead, and was set back",
		"the leader has them due again within seconds, or its log says why not; have the machine's clock slewed and not stepped "+
			"(chronyd without makestep after the start)")
}

// longDue is for how long a job may be due before it is reported: a task
// that Redis lost is enqueued again sooner.
const longDue = time.Minute

func (fs *Findings) judgeWorkers(s repo.State) {
	const what = "workers"
	found := fmt.Sprintf("%d alive, room for %d jobs at once", s.Workers, s.Slots)
	if s.OldestDue > longDue {
		found += fmt.Sprintf(", %d of it taken; a job has been due for %v", s.Held, s.OldestDue.Round(time.Second))
	}
	switch {
	case s.Workers == 0 && s.OldestDue > 0:
		fs.Warn(what, fmt.Sprintf("none is alive, and jobs wait, one for %v", s.OldestDue.Round(time.Second)),
			"start 'forgerun worker'; if one runs, its log says why it has no lease")
	case s.Workers == 0:
		fs.Warn(what, "none is alive: jobs would wait", "start 'forgerun worker'")
	case s.OldestDue > longDue && s.Held < s.Slots && !s.Moving:
		fs.Warn(what, found+", and none was started in the last minute",
			"look for what is wrong with Redis or the leader here, then in the logs of the workers and of the leader")
	default:
		fs.OK(what, found)
	}
}
