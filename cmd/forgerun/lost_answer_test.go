package main

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// behindProxy is a stack whose worker, or api, reaches Postgres through a
// proxy that loses answers.
func behindProxy(t *testing.T) (*stack, *lossyProxy, env) {
	t.Helper()
	s := newStack(t)
	p := newLossyProxy(t, s.databaseURL)
	return s, p, env{"FORGERUN_DATABASE_URL": p.url(s.databaseURL), "FORGERUN_HEARTBEAT_INTERVAL": "500ms"}
}

// workerSteps is a part of the statement that all steps of a worker share; the
// next state is one of its arguments.
const workerSteps = `INSERT INTO results`

func TestClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s, proxy, through := behindProxy(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(through)
	lost := proxy.loseAnswerTo(workerSteps, "ASSIGNED")
	id := u.submit(api, execute("SUCCESS_FAST"))
	lost(t)
	worker.logged("cannot claim a job")
	s.await("SUCCEEDED", id)
	require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	require.Equal(t, 5, s.count(`SELECT count(*) FROM events`), "the claim that came about is the one that runs")
	require.Equal(t, 1, s.count(`SELECT count(*) FROM workers`))
	s.checkInvariants()
}

func TestStartWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s, proxy, through := behindProxy(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(through)
	lost := proxy.loseAnswerTo(workerSteps, "RUNNING")
	id := u.submit(api, execute("SUCCESS_FAST"))
	lost(t)
	worker.logged("storage trouble while a job is held", `"action":"start"`)
	s.await("SUCCEEDED", id)
	require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	require.Equal(t, 5, s.count(`SELECT count(*) FROM events`), "it starts once")
	s.checkInvariants()
}

func TestFinishWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s, proxy, through := behindProxy(t)
	api := s.startLeader()
	u := s.newUser(api)
	worker := s.startWorker(through)
	lost := proxy.loseAnswerTo(workerSteps, "SUCCEEDED")
	id := u.submit(api, execute("SUCCESS_FAST"))
	lost(t)
	s.await("SUCCEEDED", id)
	worker.logged("storage trouble while a job is held")
	next := u.submit(api, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", next)
	s.checkInvariants()
}

func TestSubmissionWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
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
	s.await("SUCCEEDED", again.text("job_id")) // nobody enqueued it: the relay does
	s.checkInvariants()
}
