package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stop has an operator stop something, and gives the way to let it go on. Statements that saw what was before are over when it
// returns.
func (c operatorClient) stop(p *proc, body string) (goOn func(*proc)) {
	c.s.t.Helper()
	a := c.call(p, "POST", "/admin/v1/pauses", body)
	require.Equal(c.s.t, http.StatusCreated, a.status, a.body)
	stopped := c.s.now()
	eventually(c.s.t, "claims that were under way are over", func() bool {
		return c.s.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start <= $1::timestamptz
			AND pid <> pg_backend_pid()`, stopped) == 0
	})
	return func(p *proc) {
		c.s.t.Helper()
		r := c.call(p, "DELETE", "/admin/v1/pauses/"+a.text("pause_id"), "")
		require.Equal(c.s.t, http.StatusNoContent, r.status, r.body)
	}
}

// assignedSince counts jobs that were claimed after the moment.
func (s *stack) assignedSince(moment string, condition string) int {
	return s.count(`SELECT count(*) FROM events JOIN jobs USING (job_id)
		WHERE event_name = 'job.assigned' AND occurred_at > $1::timestamptz AND (`+condition+`)`, moment)
}

func (s *stack) now() string { return s.text(`SELECT clock_timestamp()::text`) }

// Everything is paused while jobs run and others are submitted: from the answer on nothing is claimed, though Redis is emptied and
// every process is killed and started again. Then all of it runs.
func TestEverythingIsPaused(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "4"})
	api := s.startLeader()
	worker := s.startWorker()
	u, ann := s.newUser(api), s.operator(operatorsToken)
	ids := u.submitMany(api, 40, execute("PAYLOAD_SMALL"))
	eventually(t, "some run", func() bool { return s.countJobs(ids, "SUCCEEDED") > 0 })
	goOn := ann.stop(worker, `{"scope":"ALL","reason":"a release"}`)
	paused := s.now()
	ids = append(ids, u.submitMany(api, 20, execute("PAYLOAD_SMALL"))...)
	last := ids[len(ids)-1]
	eventually(t, "the client sees it", func() bool {
		waiting, _ := u.get(api, last).value("waiting").(map[string]any)
		return waiting["reason"] == "PAUSED"
	})
	require.Equal(t, "5", u.get(api, last).header.Get("Retry-After"))

	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	worker.kill()
	api.kill()
	api = s.startLeader()
	s.startWorker()
	flushed := s.count(`SELECT epoch FROM maintenance_state`)
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	eventually(t, "the tasks are back", func() bool { return s.count(`SELECT epoch FROM maintenance_state`) > flushed && len(s.tasks()) > 20 })
	require.Zero(t, s.assignedSince(paused, "true"))

	a := ann.call(api, "GET", "/admin/v1/overview", "")
	require.Contains(t, a.body, `"ann has paused all jobs: a release"`)
	again := ann.call(api, "POST", "/admin/v1/pauses", `{"scope":"ALL","reason":"another"}`)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "a release", again.text("reason"))
	goOn(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `occurred_at < (SELECT at FROM audit WHERE action = 'resume' LIMIT 1)`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM audit WHERE action = 'pause' AND operator = 'ann' AND detail->>'reason' = 'a release'`))
	s.checkInvariants()
}

// A kind and a client are paused on a queue that they share with others: these go on, and what was put aside comes later in the
// order in which it was queued, whoever leads then.
func TestAKindAndAClientArePaused(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "1"})
	leader := s.startLeader()
	api := s.startAPI()
	u, other, ann := s.newUser(api), s.newUser(api), s.operator(operatorsToken)
	kind := ann.stop(api, `{"scope":"KIND","target":"PAYLOAD_LARGE","reason":"too large"}`)
	client := ann.stop(api, `{"scope":"CLIENT","target":"`+u.id+`","reason":"asked for"}`)
	s.startWorker()
	paused := s.now()
	ids := u.submitAlike(api, 30, execute("PAYLOAD_SMALL"))
	large := other.submit(api, execute("PAYLOAD_LARGE"))
	s.await("SUCCEEDED", other.submit(api, execute("PAYLOAD_SMALL")))
	require.Equal(t, map[string]any{"reason": "PAUSED", "until": nil}, other.get(api, large).value("waiting"))
	eventually(t, "all are aside", func() bool {
		return s.count(`SELECT count(*) FROM jobs WHERE run_at > now() + interval '1 year'`) == 31
	})
	require.Zero(t, s.assignedSince(paused, `work_kind <> 'PAYLOAD_SMALL' OR jobs.client_id = '`+u.id+`'`))

	leader.kill()
	client(api)
	s.awaitFinal(ids...)
	require.Zero(t, s.assignedSince(paused, `job_id = '`+large+`'`))
	kind(api)
	s.awaitFinal(large)
	started := s.text(`SELECT string_agg(job_id::text, ',' ORDER BY started_at) FROM jobs WHERE client_id = $1`, u.id)
	require.Equal(t, strings.Join(ids, ","), started, "in their order")
	s.checkInvariants()
}

// A worker is drained: it ends what it runs and takes nothing, others go on, and it goes on when it may.
func TestAWorkerIsDrained(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "2", "FORGERUN_TIME_SCALE": "1"})
	api := s.startLeader()
	s.startWorker()
	u, ann := s.newUser(api), s.operator(operatorsToken)
	running := u.submit(api, execute("SUCCESS_FAST"))
	s.await("RUNNING", running)
	worker := s.text(`SELECT worker_id::text FROM workers`)
	goOn := ann.stop(api, `{"scope":"WORKER","target":"`+worker+`","reason":"its host is restarted"}`)
	drained := s.now()
	ids := u.submitMany(api, 10, execute("PAYLOAD_SMALL"))
	s.await("SUCCEEDED", running)
	require.Contains(t, ann.call(api, "GET", "/admin/v1/workers", "").body, `"drained":true`)
	s.startWorker()
	s.awaitFinal(ids...)
	took := func() int {
		return s.count(`SELECT count(*) FROM reports JOIN jobs USING (job_id) WHERE reports.worker_id::text = $1
			AND assigned_at > $2::timestamptz`, worker, drained)
	}
	require.Zero(t, took())
	goOn(api)
	eventually(t, "it takes jobs again", func() bool {
		s.awaitFinal(u.submitMany(api, 4, execute("PAYLOAD_SMALL"))...)
		return took() > 0
	})
	s.checkInvariants()
}

// Submissions are drained on every api process within a second; what was accepted is run.
func TestSubmissionsAreDrained(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken})
	apis := []*proc{s.startLeader(), s.startAPI()}
	u, ann := s.newUser(apis[0]), s.operator(operatorsToken)
	keyed := execute("PAYLOAD_SMALL", `"idempotency_key":"first"`)
	first := u.submit(apis[0], keyed)
	goOn := ann.stop(apis[0], `{"scope":"ALL","mode":"DRAIN","reason":"moving house"}`)
	began := time.Now()
	for _, api := range apis {
		eventually(t, "nothing is accepted", func() bool {
			return u.trySubmit(api, execute("PAYLOAD_SMALL")).status == http.StatusServiceUnavailable
		})
		a := u.trySubmit(api, execute("PAYLOAD_SMALL"))
		a.requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
		require.Equal(t, "10", a.header.Get("Retry-After"))
		replayed := u.trySubmit(api, keyed)
		require.Equal(t, first, replayed.text("job_id"), replayed.body)
	}
	t.Log("refused everywhere after", time.Since(began))
	s.startWorker()
	s.awaitFinal(s.acceptedIDs()...)
	goOn(apis[1])
	for _, api := range apis {
		eventually(t, "jobs are accepted again", func() bool { return u.trySubmit(api, execute("PAYLOAD_SMALL")).status == http.StatusAccepted })
	}
	s.awaitFinal(s.acceptedIDs()...)
	s.checkInvariants()
}
