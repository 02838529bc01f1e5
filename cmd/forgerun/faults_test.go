//go:build slow && linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// Some tests in this file take minutes, others need root to mount a file system. "make test-all" runs them one after the other.

// trial is a stack under load: a client submits jobs until a call of `end`.
type trial struct {
	*stack
	u    *user
	api  *proc
	load *load
	hook *receiver

	staleTasks bool // Redis may still have tasks of ended jobs at the end; discard them
}

func newTrial(s *stack, own map[string]env) *trial {
	s.t.Helper()
	s.env = merge(s.env, defaultTimeout)
	r := &trial{stack: s, hook: newReceiver(s.t, nil)}
	r.api = s.startLeader(own["api"])
	r.u = s.newUser(r.api)
	r.u.subscribe(r.api, r.hook.url, "job.succeeded")
	s.startWorker(quickLease, env{"FORGERUN_WORKER_CONCURRENCY": "32"}, own["worker"])
	s.start("deliverer", own["deliverer"])
	r.load = r.u.startLoad(func() *proc { return r.api }, 1, func(key string) string {
		return execute("SUCCESS_FAST", `"idempotency_key":"`+key+`"`)
	})
	r.progress("before")
	return r
}

func (r *trial) progress(when string) {
	r.t.Helper()
	accepted, delivered := len(r.acceptedIDs()), len(r.hook.all())
	done := func() int { return r.count(`SELECT count(*) FROM jobs WHERE state = 'SUCCEEDED'`) }
	succeeded := done()
	eventually(r.t, "jobs are accepted and run, and events delivered, "+when, func() bool {
		return len(r.acceptedIDs()) > accepted+30 && done() > succeeded+30 && len(r.hook.all()) > delivered+30
	})
}

func (r *trial) refusals() {
	r.t.Helper()
	before := r.load.refusals()
	eventually(r.t, "requests are refused", func() bool { return r.load.refusals() > before+8 })
}

func (r *trial) end() {
	r.t.Helper()
	for _, a := range r.load.stop() {
		require.Contains(r.t, []int{http.StatusServiceUnavailable, http.StatusGatewayTimeout}, a.status, a.body)
	}
	r.drained("jobs that have not ended", `SELECT count(*) FROM jobs WHERE finished_at IS NULL`)
	require.Equal(r.t, r.count(`SELECT count(*) FROM jobs`), r.count(`SELECT count(*) FROM idempotency_keys WHERE resource_id IS NOT NULL`),
		"one job per key")
	r.drained("events that have not been delivered", `SELECT count(*) FROM deliveries WHERE state <> 'DELIVERED'`)
	if r.staleTasks {
		require.NoError(r.t, r.rdb.FlushAll(r.ctx()).Err())
	}
	r.checkInvariants()
	r.t.Logf("%d jobs, %d refused requests", r.count(`SELECT count(*) FROM jobs`), r.load.refusals())
}

// drained waits until the SQL query returns 0. It fails if the number stops decreasing.
func (r *trial) drained(what, sql string) {
	r.t.Helper()
	for left := r.count(sql); left > 0; {
		before := left
		eventually(r.t, fmt.Sprintf("fewer than %d %s", before, what), func() bool {
			left = r.count(sql)
			return left < before
		})
	}
}

func mountSmall(t *testing.T, size string) string {
	t.Helper()
	dir := tempDir(t)
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, "size="+size), "this needs root")
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func fillUp(t *testing.T, dir string) (release func()) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	require.ErrorIs(t, os.WriteFile(path, make([]byte, 1<<30), 0o600), syscall.ENOSPC)
	return func() { require.NoError(t, os.Remove(path)) }
}

// The disk with the tables is full. Requests that write are refused until there is space again.
func TestFaultTablesWithoutDiskSpace(t *testing.T) {
	postgres := repotest.Server(t)
	dir := smallDisk(t, postgres.URL())
	r := newTrial(newStackOn(t, postgres.URL()), nil)
	release := fillUp(t, dir)
	r.refusals()
	time.Sleep(10 * time.Second)
	release()
	r.progress("afterwards")
	r.end()
}

// The disk with the WAL is full, so Postgres crashes. Postgres starts again when there is space.
func TestFaultWALWithoutDiskSpace(t *testing.T) {
	dir := mountSmall(t, "256m")
	postgres, err := local.StartPostgres(t.Context(), local.ServerOptions{
		Dir: filepath.Join(dir, "postgres"), Settings: map[string]string{"max_wal_size": "64MB", "wal_recycle": "off"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Kill()) })
	require.NoError(t, repo.Migrate(t.Context(), postgres.URL(), -1))
	r := newTrial(newStackOn(t, postgres.URL()), nil)
	release := fillUp(t, dir)
	r.refusals()
	eventually(t, "Postgres crashes", func() bool {
		_, _ = r.db.Exec(t.Context(), `SELECT pg_logical_emit_message(false, 'fill', repeat('x', 1000000)), pg_switch_wal()`)
		return postgres.PID() == 0
	})
	release()
	require.NoError(t, postgres.Start(t.Context()))
	r.db.Reset()
	r.progress("afterwards")
	r.end()
}

// The disk with the files of Redis is full, so Redis refuses writes. The API still accepts jobs. When there is space again, the relay
// enqueues them.
func TestFaultRedisWithoutDiskSpace(t *testing.T) {
	dir := mountSmall(t, "48m")
	s := newStackOn(t, repotest.URL(t))
	s.startRedisIn(dir)
	s.env["FORGERUN_REDIS_URL"] = s.redis.URL()
	r := newTrial(s, nil)
	release := fillUp(t, dir)
	eventually(t, "Redis refuses writes", func() bool { return s.rdb.Set(s.ctx(), "probe", 1, 0).Err() != nil })
	accepted := len(s.acceptedIDs())
	eventually(t, "jobs are accepted", func() bool { return len(s.acceptedIDs()) > accepted+100 })
	release()
	r.progress("afterwards")
	r.end()
}

// No job is lost during maintenance of the database: a dump, VACUUM FULL, REINDEX, CLUSTER, locks or long transactions.
func TestFaultDatabaseMaintenance(t *testing.T) {
	r := newTrial(newStackOn(t, repotest.URL(t)), nil)
	programs, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	runIn(t, ".", nil, slices.Max(programs), "--dbname="+r.databaseURL, "--file=/dev/null")
	r.progress("after a dump")
	for _, sql := range []string{
		`VACUUM FULL jobs`, `VACUUM FULL events`, `REINDEX TABLE jobs`, `CLUSTER deliveries USING deliveries_pkey`, `ANALYZE`,
	} {
		began := time.Now()
		r.exec(sql)
		t.Logf("%s took %v", sql, time.Since(began))
		r.progress("after " + sql)
	}
	hold := r.lock(`LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE`)
	r.refusals()
	hold()
	r.progress("after a lock")
	old := r.lock(`SELECT count(*) FROM jobs`) // a snapshot that stops VACUUM from removing dead rows
	time.Sleep(15 * time.Second)
	r.progress("during a long transaction")
	old()
	r.end()
}

// One after the other, each role loses its connection to each store.
func TestFaultPartitions(t *testing.T) {
	s := newStackOn(t, repotest.URL(t))
	own, cuts := map[string]env{}, map[string]*relay{}
	for _, role := range []string{"api", "worker", "deliverer"} {
		database, redis := newRelay(t, hostOf(t, s.databaseURL)), newRelay(t, hostOf(t, s.redis.URL()))
		own[role] = env{
			"FORGERUN_DATABASE_URL": database.through(t, s.databaseURL),
			"FORGERUN_REDIS_URL":    redis.through(t, s.redis.URL()),
		}
		cuts[role+" from Postgres"], cuts[role+" from Redis"] = database, redis
	}
	r := newTrial(s, own)
	for who, between := range cuts {
		between.stalled.Store(true)
		time.Sleep(12 * time.Second) // longer than leases and statement timeouts
		between.stalled.Store(false)
		r.progress("after cutting " + who)
	}
	r.end()
}

func TestFaultClockStep(t *testing.T) {
	for name, seconds := range map[string]int{"ahead": 3600, "back": -3600} {
		t.Run(name, func(t *testing.T) {
			s, clock := newStackWithClock(t, 0)
			r := newTrial(s, nil)
			clock.shift(seconds)
			time.Sleep(15 * time.Second)
			clock.shift(0)
			r.progress("afterwards")
			r.staleTasks = true // while the clock was wrong, tasks were scheduled up to an hour ahead; they outlive their jobs
			r.end()
		})
	}
}
