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
var redisObstacles = []obstacle{
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

// judgeRedis judges what Inspect found, or why it found nothing.
func (fs *Findings) judgeRedis(i queue.Inspection, err error) {
	if err != nil {
		fs.judgeObstacle("Redis", i.Place, "FORGERUN_REDIS_URL", err, redisObstacles)
		return
	}
	if len(i.Servers) == 0 {
		fs.Fail("Redis", "the cluster at "+i.Place+" has no masters", "look at CLUSTER NODES")
	}
	for _, s := range i.Servers {
		name := "Redis"
		if len(i.Servers) > 1 {
			name += " " + s.Address
		}
		fs.judgeServer(name, s)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Wrong)) {
		fs.Fail("Redis key "+key, "holds a "+i.Wrong[key]+": the queue cannot use it",
			"nothing while a process runs: the leader removes it within seconds; give each program a Redis database of its own")
	}
	for _, paused := range i.Paused {
		fs.Warn("Redis queue "+paused, "paused: nobody takes from it", "redis-cli -u \"$FORGERUN_REDIS_URL\" DEL 'asynq:{"+paused+"}:paused'")
	}
}

func (fs *Findings) judgeServer(name string, s queue.ServerFacts) {
	if s.Version == "" {
		fs.Warn(name+" version", s.Address+" does not tell it, and so nothing else: an imitation of Redis, as of dev where none is installed",
			"use Redis 6.2 or Valkey in production")
		return
	}
	product := map[string]string{"redis": "Redis", "valkey": "Valkey"}[s.Product]
	if found := product + " " + s.Release + " at " + s.Address; atLeast(s.Version, 6, 2) {
		fs.OK(name+" version", found)
	} else {
		fs.Fail(name+" version", found+", but 6.2 is the oldest that is supported", "upgrade the server")
	}
	if s.Role == "slave" {
		fs.Fail(name+" role", "replica: it takes no writes", "let FORGERUN_REDIS_URL lead to the master, or use redis-sentinel://")
	} else {
		fs.OK(name+" role", s.Role)
	}
	fs.judgeAppendOnly(name, s)
	fs.judgeMemory(name, s)
	if s.RoundTrip > 0 {
		fs.judgeClock(name+" clock", s.ClockOffset, s.RoundTrip)
	}
}

// judgeAppendOnly only ever warns: what Redis loses is enqueued again from
// Postgres, apart from entries of the outcome stream that are older than a
// minute.
func (fs *Findings) judgeAppendOnly(name string, s queue.ServerFacts) {
	what := name + " persistence"
	switch {
	case s.AppendOnly == "":
		fs.OK(what, "not told by this server, so not checked")
	case s.AppendOnly == "0":
		fs.Warn(what, "appendonly is no: a restart loses the queue, which is then filled again, and the outcome stream for good",
			"CONFIG SET appendonly yes, and the same in redis.conf")
	case s.AppendFsync == "":
		fs.OK(what, "appendonly is yes; appendfsync is not known, since this server forbids CONFIG")
	case s.AppendFsync == "no":
		fs.Warn(what, "appendfsync is no: a crash of the machine loses up to half a minute of the queue, and of the outcome stream",
			"CONFIG SET appendfsync everysec, and the same in redis.conf")
	default:
		fs.OK(what, "appendonly is yes, appendfsync is "+s.AppendFsync)
	}
}

// fullMemory is the part of maxmemory beyond which it is reported.
const fullMemory = 0.8

func (fs *Findings) judgeMemory(name string, s queue.ServerFacts) {
	const advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
	switch what := name + " maxmemory-policy"; {
	case s.Policy == "noeviction":
		fs.OK(what, s.Policy)
	case s.Policy == "":
		fs.OK(what, "not told by this server, so not checked")
	case s.MaxMemory > 0:
		fs.Fail(what, s.Policy+": Redis drops tasks, counters and outcomes when it is full, and nobody notices", advice)
	default:
		fs.Warn(what, s.Policy+": harmless only as long as maxmemory is not set", advice)
	}
	what, used := name+" memory", fmt.Sprintf("%d MiB used", s.Used>>20)
	switch {
	case s.MaxMemory == 0:
		fs.OK(what, used+", no maxmemory")
	case float64(s.Used) > fullMemory*float64(s.MaxMemory):
		fs.Warn(what, fmt.Sprintf("%s of %d MiB: a full Redis refuses tasks", used, s.MaxMemory>>20),
			"raise maxmemory, or find what else is in there (redis-cli --bigkeys)")
	default:
		fs.OK(what, fmt.Sprintf("%s of %d MiB", used, s.MaxMemory>>20))
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
