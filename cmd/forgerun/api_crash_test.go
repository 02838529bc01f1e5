package main

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/repo/repotest"
)

// This test pauses Redis before the API starts, so that the API cannot enqueue the task.
func TestAPIKilledAfterCommitBeforeEnqueue(t *testing.T) { killAfterCommit(t, false) }

func TestAPIKilledAfterEnqueue(t *testing.T) { killAfterCommit(t, true) }

func killAfterCommit(t *testing.T, enqueued bool) {
	s := newStack(t)
	if !enqueued {
		require.NoError(t, s.redis.Pause())
	}
	api := s.startAPI()
	u := s.newUser(api)
	ids := u.submitMany(api, 10, execute("SUCCESS_FAST"))
	if enqueued {
		s.awaitRelayed(ids)
	}
	api.kill()
	if !enqueued {
		require.NoError(t, s.redis.Resume())
		require.Empty(t, s.tasks())
	}
	s.startWorker()
	s.await("SUCCEEDED", ids...)
	s.checkInvariants()
}

func TestAPIKilledBeforeCommit(t *testing.T) {
	bodies := make([]string, 5)
	for i := range bodies {
		bodies[i] = execute("SUCCESS_FAST", `"idempotency_key":"`+uuid.NewString()+`"`)
	}
	s, api, u := killBeforeCommit(t, "jobs", "/v1/jobs", bodies)
	var ids []string
	for _, body := range bodies {
		ids = append(ids, u.submit(api, body))
	}
	s.await("SUCCEEDED", ids...)
	require.Equal(t, len(bodies), s.count(`SELECT count(*) FROM jobs`))
	s.checkInvariants()
}

func killBeforeCommit(t *testing.T, table, path string, bodies []string, headers ...string) (s *stack, api *proc, u *user) {
	t.Helper()
	s = newStack(t)
	doomed := s.startAPI()
	u = s.newUser(doomed)
	unlock := s.lock(`LOCK TABLE ` + table + ` IN ACCESS EXCLUSIVE MODE`)
	var flying errgroup.Group
	for _, body := range bodies {
		flying.Go(func() error {
			require.Error(t, u.call(doomed, "POST", path, body, headers...).err, "there is no response before the commit")
			return nil
		})
	}
	eventually(t, "the insert waits", func() bool {
		return s.count(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO idempotency_keys%'
			AND datname = current_database()`) > 0
	})
	doomed.kill()
	require.NoError(t, flying.Wait())
	unlock()
	s.startWorker()
	return s, s.startAPI(), u
}

func TestThousandConcurrentRequestsWithOneKey(t *testing.T) {
	s := newStack(t)
	apis := []*proc{s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	s.startWorker()
	body := execute("SUCCESS_FAST", `"idempotency_key":"the-only-one"`)
	const requests, atOnce = 1000, 100
	var group errgroup.Group
	group.SetLimit(atOnce)
	var fresh atomic.Int32
	for i := range requests {
		group.Go(func() error {
			a := u.trySubmit(apis[i%2], body)
			for a.status == http.StatusServiceUnavailable { // until the other request with this key has ended
				a = u.trySubmit(apis[i%2], body)
			}
			if a.header.Get("Idempotency-Replayed") == "" {
				fresh.Add(1)
			}
			if a.status != http.StatusAccepted {
				t.Errorf("response %d: %s %v", a.status, a.body, a.err)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, 1, fresh.Load(), "responses that are not replays")
	require.Len(t, s.acceptedIDs(), 1, "all responses name one job")
	require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs`))
	conflict := u.trySubmit(apis[1], execute("SUCCESS_SLOW", `"idempotency_key":"the-only-one"`))
	conflict.requireProblem(t, http.StatusConflict, "RFA_EXEC_IDEMPOTENCY_CONFLICT")
	s.await("SUCCEEDED", s.acceptedIDs()...)
	s.checkInvariants()
}

func behindProxy(t *testing.T) (*stack, *lossyProxy, env) {
	t.Helper()
	s := newStack(t)
	p := newLossyProxy(t, s.databaseURL)
	return s, p, env{"FORGERUN_DATABASE_URL": p.through(t, s.databaseURL)}
}

// workerSteps is a part of the SQL statement that stores a job's state for a worker. The proxy looks for this text, and for the new state
// in the statement's arguments.
const workerSteps = `INSERT INTO results`

func TestWorkerRepeatsStepAfterLostResponse(t *testing.T) {
	s, proxy, through := behindProxy(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(through)
	const claim, write = "cannot claim a job", "cannot store a change of a job; trying again"
	for state, line := range map[string]string{"ASSIGNED": claim, "RUNNING": write, "SUCCEEDED": write} {
		repeated := func() int { return strings.Count(worker.log.String(), line) }
		before := repeated()
		lost := proxy.loseAnswerTo(workerSteps, state)
		id := u.submit(api, execute("SUCCESS_FAST"))
		lost(t)
		eventually(t, "the worker repeats the step to "+state, func() bool { return repeated() > before })
		s.await("SUCCEEDED", id, u.submit(api, execute("SUCCESS_FAST")))
		s.requireEvents(id, "job.created", "job.queued", "job.assigned", "job.running", "job.succeeded")
		require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM workers`))
	s.checkInvariants()
}

func TestSubmissionWithLostResponse(t *testing.T) {
	s, proxy, through := behindProxy(t)
	s.startWorker()
	api := s.startAPI(through)
	u := s.newUser(api)
	body := execute("SUCCESS_FAST", `"idempotency_key":"`+uuid.NewString()+`"`)
	lost := proxy.loseAnswerTo(`INSERT INTO idempotency_keys`, "")
	a := u.trySubmit(api, body)
	lost(t)
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	require.Nil(t, a.value("job_id"))
	again := u.trySubmit(api, body)
	require.Equal(t, http.StatusAccepted, again.status, again.body)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs`))
	s.await("SUCCEEDED", again.text("job_id")) // the api did not enqueue the job, so the relay does
	s.checkInvariants()
}

func (u *user) keyed(api *proc, key, path, body string) answer {
	u.s.t.Helper()
	a := u.call(api, "POST", path, body, "Idempotency-Key", key)
	require.NoError(u.s.t, a.err)
	require.Less(u.s.t, a.status, http.StatusBadRequest, "%s: %s", path, a.body)
	return a
}

func TestRetryIsRepeatedAfterCrashBeforeCommit(t *testing.T) {
	s, api, u := newWorking(t)
	id := u.submitAndAwait(api, "FAILED", execute("RETRY_LIMIT_REACHED"))
	s.exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER hold BEFORE UPDATE ON idempotency_keys FOR EACH ROW EXECUTE FUNCTION hold()`) // hangs before the commit
	asked := make(chan answer, 1)
	go func() { asked <- u.call(api, "POST", "/v1/jobs/"+id+"/retry", "", "Idempotency-Key", "k") }()
	s.awaitCount("the response is being stored", 1,
		`SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	require.Equal(t, 1, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))
	api.kill()
	require.Error(t, (<-asked).err)
	s.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	s.exec(`DROP TRIGGER hold ON idempotency_keys`)
	api = s.startAPI()
	first := u.keyed(api, "k", "/v1/jobs/"+id+"/retry", "")
	require.Equal(t, true, first.value("changed"))
	require.Empty(t, first.header.Get("Idempotency-Replayed"))
	require.Equal(t, 2, s.count(`SELECT attempt FROM jobs WHERE job_id = $1`, id))
	s.checkInvariants()
}

func emptyDatabase(t *testing.T) string {
	t.Helper()
	other := repotest.URL(t)
	admin := openPool(t, other)
	name := "forgerun_empty_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := admin.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
		require.NoError(t, err)
	})
	u, err := url.Parse(other)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

func TestTenProcessesStartOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, emptyDatabase(t))
	api, worker := s.start("api"), s.start("worker")
	api.waitAPI()
	anonymous := &user{s: s}
	require.Equal(t, http.StatusServiceUnavailable, anonymous.call(api, "GET", "/readyz", "").status, "there is no schema yet")
	var migrations []*proc
	for range 8 {
		migrations = append(migrations, s.start("migrate"))
	}
	for _, m := range migrations {
		require.Zero(t, m.exitCode(), m.log)
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM maintenance_state`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM goose_db_version WHERE version_id = 1`))
	worker.logged("worker registered")
	require.Equal(t, http.StatusOK, anonymous.call(api, "GET", "/readyz", "").status)
	u := s.newUser(api)
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	s.checkInvariants()
}
