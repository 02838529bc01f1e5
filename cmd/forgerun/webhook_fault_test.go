package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireAllDelivered waits until no delivery is pending. The receiver must have received every event of the jobs.
func (s *stack) requireAllDelivered(r *receiver, ids []string) {
	s.t.Helper()
	s.await("SUCCEEDED", ids...)
	s.awaitDeliveries()
	require.Zero(s.t, s.count(`SELECT count(*) FROM deliveries WHERE state <> 'DELIVERED'`))
	seen := map[string]map[string]bool{}
	for _, d := range r.all() {
		if seen[d.job()] == nil {
			seen[d.job()] = map[string]bool{}
		}
		seen[d.job()][d.event()] = true
	}
	for _, id := range ids {
		for _, name := range life {
			require.True(s.t, seen[id][name], "%s of job %s did not arrive", name, id)
		}
	}
	s.checkInvariants()
}

func (s *stack) endClaims() {
	s.t.Helper()
	s.exec(`UPDATE deliveries SET claimed_until = now() WHERE delivery_id = ANY (ARRAY( -- in the order of all statements: no deadlock
		SELECT delivery_id FROM deliveries WHERE claimed_until IS NOT NULL ORDER BY delivery_id FOR NO KEY UPDATE))`)
}

// awaitGone waits until Postgres has no session of this role. Call awaitGone after a kill, because the process's last statement may still
// run.
func (s *stack) awaitGone(role string) {
	s.t.Helper()
	s.awaitCount("its sessions are over", 0,
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, "forgerun "+role)
}

// A deliverer is killed while it sends deliveries. Another deliverer repeats these deliveries with the same ids.
func TestKilledDeliverer(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "60s"})
	api, victim, u := s.startDelivering()
	hang, _ := hold()
	r := u.receive(api, hang)
	ids := u.submitMany(api, 5, execute("WEBHOOK_SUCCESS"))
	s.await("SUCCEEDED", ids...)
	eventually(t, "some deliveries are being sent", func() bool { return len(r.all()) > 0 })
	require.NotZero(t, s.count(`SELECT count(*) FROM deliveries WHERE claimed_until IS NOT NULL`))
	victim.kill()
	s.awaitGone("deliverer")
	s.endClaims()
	inFlight := r.all()
	r.respondWith(withStatus(http.StatusOK))
	s.startDeliverer()
	s.requireAllDelivered(r, ids)
	for _, d := range inFlight {
		again := r.await("the repeated delivery", func(other received) bool { return other.id() == d.id() && other.nth > 1 })
		require.Equal(t, d.body, again.body)
		require.Equal(t, d.event(), again.event())
	}
}

// A deliverer is paused until its claims have expired. When it continues, it changes nothing.
func TestPausedDeliverer(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "60s"})
	api, paused, u := s.startDelivering()
	hang, release := hold()
	r := u.receive(api, hang, "job.succeeded")
	id := u.submit(api, execute("WEBHOOK_SUCCESS"))
	r.await("the end", func(d received) bool { return d.job() == id })
	paused.pause()
	s.endClaims()
	r.respondWith(withStatus(http.StatusOK))
	s.startDeliverer()
	s.awaitDeliveries()
	attempts := s.count(`SELECT attempts FROM deliveries`)
	release()
	paused.resume()
	paused.stop()
	require.Equal(t, attempts, s.count(`SELECT attempts FROM deliveries`), "the paused process records nothing")
	require.Equal(t, 1, s.count(`SELECT count(*) FROM delivery_attempts`))
	s.checkInvariants()
}

func TestTerminatedDeliverer(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_WEBHOOK_TIMEOUT": "60s"})
	api, deliverer, u := s.startDelivering()
	slow, release := hold()
	r := u.receive(api, slow, "job.succeeded")
	ids := u.submitMany(api, 3, execute("WEBHOOK_SUCCESS"))
	s.await("SUCCEEDED", ids...)
	r.await("the end", func(received) bool { return true })
	deliverer.terminate()
	deliverer.logged("stopping")
	release()
	require.Zero(t, deliverer.exitCode())
	require.Equal(t, len(r.all()), s.count(`SELECT count(*) FROM deliveries WHERE state = 'DELIVERED'`),
		"pending sends were completed and recorded")
	require.Zero(t, s.count(`SELECT count(*) FROM deliveries WHERE claimed_until IS NOT NULL`), "the other claims were released")
	s.startDeliverer()
	s.awaitDeliveries()
	require.Len(t, r.all(), 3, "nothing was sent twice")
	s.checkInvariants()
}

func TestRedisDownWhileDelivering(t *testing.T) {
	s, api, u := newDelivering(t)
	r := u.receive(api, nil)
	ids := u.submitMany(api, 20, execute("WEBHOOK_SUCCESS"))
	require.NoError(t, s.redis.Kill())
	ids = append(ids, u.submitMany(api, 20, execute("WEBHOOK_SUCCESS"))...)
	require.NoError(t, s.redis.Start(t.Context()))
	s.requireAllDelivered(r, ids)
}

// Postgres crashes while deliveries are being sent. No committed delivery is lost. Deliveries without a stored result are sent again.
func TestPostgresCrashWhileDelivering(t *testing.T) {
	s, postgres := newStackWithPostgres(t, hooks)
	api, _, u := s.startDelivering()
	r := u.receive(api, nil)
	ids := u.submitMany(api, 40, execute("WEBHOOK_SUCCESS"))
	eventually(t, "some have arrived", func() bool { return len(r.all()) > 10 })
	require.NoError(t, postgres.Kill())
	require.NoError(t, postgres.Start(t.Context()))
	s.db.Reset()
	s.endClaims()
	s.requireAllDelivered(r, ids)
}

// A deliverer never connects to a private address, even if the API accepted the URL.
func TestPrivateAddressesAreNotCalled(t *testing.T) {
	s, api, u := newWorking(t, hooks) // simulate a name that had a public address at registration and now has a private one
	s.startDeliverer(env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "false"})
	canary := u.receive(api, nil, "job.succeeded")
	u.submitAndAwait(api, "SUCCEEDED", execute("WEBHOOK_SUCCESS", `"callback":"`+canary.url+`"`))
	s.awaitDeliveries()
	log := u.deliveries(api, "/v1/webhooks/"+canary.hook.id, "")
	require.Equal(t, "FAILED", log[0]["state"])
	require.Equal(t, "ADDRESS_FORBIDDEN", log[0]["last_error"].(map[string]any)["code"])
	canary.mu.Lock()
	require.Zero(t, canary.opened)
	canary.mu.Unlock()

	strict := s.startAPI(env{"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "false"})
	for _, url := range []string{canary.url, "http://169.254.169.254/latest/meta-data/"} {
		a := u.call(strict, "POST", "/v1/webhooks", `{"url":"`+url+`","events":["*"]}`)
		a.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
		a = u.trySubmit(strict, execute("WEBHOOK_SUCCESS", `"callback":"`+url+`"`))
		a.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	}
	s.checkInvariants()
}
