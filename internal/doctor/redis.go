package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/tasks/queue"
)

// redisObstacles say what to do when Redis cannot be inspected.
var redisObstacles = obstacles{
	{queue.ErrBadURL, "correct FORGERUN_REDIS_URL"},
	{queue.ErrAway, "start Redis, or correct the hosts in FORGERUN_REDIS_URL; until then jobs are accepted, but wait"},
	{queue.ErrSilent,
		"look at the server: it hangs, is overloaded, or a firewall drops the packets; write redis:// for rediss:// if it has no TLS"},
	{queue.ErrClosed, "write rediss:// in FORGERUN_REDIS_URL if the server wants TLS; otherwise look at the server's log"},
	{queue.ErrLogin,
		"write the user and password into FORGERUN_REDIS_URL: redis://user:password@host:6379/0 (no user: redis://:password@...)"},
	{queue.ErrNoDatabase, "correct the number at the end of FORGERUN_REDIS_URL, or raise 'databases' in redis.conf"},
	{queue.ErrTLS, "write redis:// if the server has no TLS, rediss:// if it has; its certificate must be valid for the host"},
	{queue.ErrUnread, "allow the user what asynq needs and INFO, GET and TIME: ACL SETUSER name +@all -@dangerous +info +keys ~* &*"},
}

// judgeRedis judges the result of an inspection.
func (fs *Findings) judgeRedis(i queue.Inspection, err error) {
	if err != nil {
		redisObstacles.judge(fs, "Redis", i.Place, "FORGERUN_REDIS_URL", err)
		return
	}
	fs.Judge("Redis", Fail(len(i.Servers) == 0, "the cluster at "+i.Place+" has no masters", "look at CLUSTER NODES"))
	for _, s := range i.Servers {
		name := "Redis"
		if len(i.Servers) > 1 {
			name += " " + s.Address
		}
		fs.judgeServer(name, s)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Wrong)) {
		fs.Judge("Redis key "+key, Fail(true, "holds a "+i.Wrong[key]+": the queue cannot use it",
			"nothing while a process runs: the leader removes it within seconds; give each program a Redis database of its own"))
	}
	for _, paused := range i.Paused {
		fs.Judge("Redis queue "+paused, Warn(true, "paused: nobody takes from it",
			"redis-cli -u \"$FORGERUN_REDIS_URL\" DEL 'asynq:{"+paused+"}:paused'"))
	}
}

// fullMemory is the part of maxmemory beyond which it is reported.
const fullMemory = 0.8

func (fs *Findings) judgeServer(name string, s queue.ServerFacts) {
	if s.Version == "" {
		fs.Judge(name+" version", Warn(true,
			s.Address+" does not tell it, and so nothing else: an imitation of Redis, as of dev where none is installed",
			"use Redis 6.2 or Valkey in production"))
		return
	}
	found := map[string]string{"redis": "Redis", "valkey": "Valkey"}[s.Product] + " " + s.Release + " at " + s.Address
	fs.Judge(name+" version",
		Fail(!atLeast(s.Version, 6, 2), found+", but 6.2 is the oldest that is supported", "upgrade the server"), OK(found))
	fs.Judge(name+" role",
		Fail(s.Role == "slave", "replica: it takes no writes", "let FORGERUN_REDIS_URL lead to the master, or use redis-sentinel://"),
		OK(s.Role))
	const untold = "not told by this server, so not checked"
	// Lost tasks are enqueued again from Postgres, so this only warns. Old entries of the outcome stream are lost for good.
	fs.Judge(name+" persistence",
		Case{s.AppendOnly == "", Healthy, untold, ""},
		Warn(s.AppendOnly == "0", "appendonly is no: a restart loses the queue, which is then filled again, and the outcome stream for good",
			"CONFIG SET appendonly yes, and the same in redis.conf"),
		Case{s.AppendFsync == "", Healthy, "appendonly is yes; appendfsync is not known, since this server forbids CONFIG", ""},
		Warn(s.AppendFsync == "no", "appendfsync is no: a crash of the machine loses up to half a minute of the queue, and of the outcome stream",
			"CONFIG SET appendfsync everysec, and the same in redis.conf"),
		OK("appendonly is yes, appendfsync is "+s.AppendFsync))
	const advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
	fs.Judge(name+" maxmemory-policy",
		Case{s.Policy == "noeviction", Healthy, s.Policy, ""},
		Case{s.Policy == "", Healthy, untold, ""},
		Fail(s.MaxMemory > 0, s.Policy+": Redis drops tasks, counters and outcomes when it is full, and nobody notices", advice),
		Warn(true, s.Policy+": harmless only as long as maxmemory is not set", advice))
	used := fmt.Sprintf("%d MiB used", s.Used>>20)
	ofMax := fmt.Sprintf("%s of %d MiB", used, s.MaxMemory>>20)
	fs.Judge(name+" memory",
		Case{s.MaxMemory == 0, Healthy, used + ", no maxmemory", ""},
		Warn(float64(s.Used) > fullMemory*float64(s.MaxMemory), ofMax+": a full Redis refuses tasks",
			"raise maxmemory, or find what else is in there (redis-cli --bigkeys)"),
		OK(ofMax))
	if s.RoundTrip > 0 {
		fs.judgeClock(name+" clock", s.ClockOffset, s.RoundTrip)
	}
}

// atLeast compares a version such as 7.0.15.
func atLeast(version string, major, minor int) bool {
	numbers := strings.SplitN(version, ".", 3)
	first, err := strconv.Atoi(numbers[0])
	if err != nil || len(numbers) < 2 {
		return err == nil && first > major
	}
	second, err := strconv.Atoi(numbers[1])
	return first > major || (err == nil && first == major && second >= minor)
}
