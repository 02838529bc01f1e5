package main

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Leases, claims, rate limits, long polls, signatures, log lines and HTTP dates use real time, even if the test bed's clock moves.
func TestTimeoutsUseRealTime(t *testing.T) {
	s := newStack(t, testBed, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "40", "FORGERUN_MAX_RUNTIME": "60m"})
	api, worker := s.startLeader(), s.startWorker()
	s.startDeliverer()
	u := s.newUser(api)
	hour := time.Now().Add(time.Hour)
	a := u.expect(api, http.StatusOK, "POST", "/v1/testbed/clock", `{"advance":"80000h"}`) // nine years
	date, err := http.ParseTime(a.header.Get("Date"))
	require.NoError(t, err)
	require.True(t, date.Before(hour), "the Date of a response")

	u = s.newUser(api) // the key of the first user has expired
	answer, release := hold()
	r := u.receive(api, answer, "job.succeeded")
	slow := u.submit(api, custom(`{"duration":"10m"}`))
	s.await("RUNNING", slow)
	after, err := strconv.Atoi(u.get(api, slow).header.Get("Retry-After"))
	require.NoError(t, err)
	require.LessOrEqual(t, after, 60, "Retry-After is in real time")
	at, err := time.Parse(time.RFC3339Nano, worker.logged("job transition", slow)["time"].(string))
	require.NoError(t, err)
	require.True(t, at.Before(hour), "the time of a log line")

	mover := s.newUser(api)
	mover.moveClock(api, `{"freeze":true}`)
	require.Equal(t, http.StatusOK, u.call(api, "GET", "/v1/jobs/"+slow, "", "Prefer", "wait=1").status, "a long poll ends")
	mover.moveClock(api, `{"freeze":false}`)
	id := u.submitAndAwait(api, "SUCCEEDED", custom(`{}`))
	r.await("the delivery", func(got received) bool { return got.job() == id })
	mover.moveClock(api, `{"advance":"25h"}`)
	release()
	s.awaitDeliveries()
	require.Len(t, r.of(id), 1, "the claim of the delivery did not expire")
	sent, err := strconv.ParseInt(r.of(id)[0].header.Get("Webhook-Timestamp"), 10, 64)
	require.NoError(t, err)
	require.True(t, time.Unix(sent, 0).Before(hour), "the signed time")

	for table, expiry := range map[string]string{"workers": "expires_at", "maintenance_state": "leader_expires_at"} {
		require.Equal(t, 1, s.count(`SELECT count(*) FROM `+table+` WHERE `+expiry+` BETWEEN now() AND now() + interval '1 hour'`), "leases")
	}
	long := u.submit(api, custom(`{"duration":"10m"}`))
	s.await("RUNNING", long)
	worker.pause()
	mover.moveClock(api, `{"advance":"5m"}`)
	require.Equal(t, "RUNNING", s.state(long), "the lease of its worker did not expire")
	worker.resume()

	frugal := s.startAPI(env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "100000", "FORGERUN_DAILY_QUOTA": "20"})
	for what, limited := range map[string]*proc{"a minute of the rate limit": api, "a day of the quota": frugal} {
		user := s.newUser(limited)
		refused := func() bool { return user.look(limited, user.key).status == http.StatusTooManyRequests }
		eventually(t, what, refused)
		mover.moveClock(api, `{"advance":"25h"}`)
		require.True(t, refused(), "%s is in real time", what)
	}
}

// The verdict measures in real time. If the clock jumps past a job's end, the jump does not count as a delay of the client.
func TestVerdictIsInRealTime(t *testing.T) {
	s, api, u := newWorking(t, testBed)
	session := u.startSession(api, `{"rules":["outcome-learned","key-renewal"]}`)
	start := u.clock(api).Now
	id := u.submit(api, customAt(start.Add(24*time.Hour)))
	old := u.key
	u.key = u.expect(api, http.StatusOK, "POST", "/v1/clients/"+u.id+"/keys/renew", "").text("api_key")
	s.secret(u.key)
	u.moveClock(api, `{"advance":"48h"}`)
	require.Equal(t, http.StatusUnauthorized, u.look(api, old).status)
	s.await("SUCCEEDED", id)
	require.Equal(t, "SUCCEEDED", u.get(api, id).text("state"))
	v, broken := u.verdict(api, session)
	require.NotContains(t, broken, "outcome-learned", "%+v", v.Results)
	require.Contains(t, broken, "key-renewal", "the old key was used again: %+v", v.Results)
}
