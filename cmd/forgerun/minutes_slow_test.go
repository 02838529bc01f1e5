//go:build slow

package main

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests to two processes exceed the rate limit for more than a minute. No span of 60 seconds has more accepted requests than the limit.
// A burst of the whole limit is accepted, and so is a request after the wait that the refusal advises.
// Promise: contract 17, 18
func TestNoMinuteHasMoreRequestsThanTheLimit(t *testing.T) {
	const limit = 60
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": strconv.Itoa(limit)})
	apis := []*proc{s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	type span struct{ sent, answered time.Time }
	var passed []span
	send := func(api *proc) (a answer, ok bool) {
		sent := time.Now()
		a = u.look(api, u.key)
		if a.status != http.StatusTooManyRequests {
			require.Equal(t, http.StatusNotFound, a.status, a.body)
			passed = append(passed, span{sent, time.Now()})
			return a, true
		}
		return a, false
	}
	for range limit {
		_, ok := send(apis[0])
		require.True(t, ok, "a burst of the whole limit is accepted")
	}
	var free time.Time
	freed := false // whether a request was accepted again; how soon this happens depends on the duration of the burst
	for i := 0; free.IsZero() || time.Now().Before(free); i++ {
		var a answer
		if a, freed = send(apis[i%2]); freed {
			break
		}
		require.Contains(t, a.header.Get("Ratelimit"), `"minute";r=0;t=`)
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.LessOrEqual(t, wait, 61)
		if free.IsZero() {
			free = time.Now().Add(time.Duration(wait) * time.Second)
		}
		time.Sleep(min(250*time.Millisecond, time.Until(free))) // interval between tries
	}
	if !freed {
		time.Sleep(time.Until(free))
		_, freed = send(apis[1])
	}
	require.True(t, freed, "after the advised wait")
	for i := range 4 * limit {
		send(apis[i%2])
	}
	for _, api := range apis {
		require.NotContains(t, api.log.String(), "the shared rate limit", "Redis was too slow, so the test proved nothing")
	}
	for i := limit; i < len(passed); i++ {
		require.GreaterOrEqual(t, passed[i].answered.Sub(passed[i-limit].sent), time.Minute, "requests %d to %d", i-limit, i)
	}
}

// asynq abandons a handler after 30 s without Redis. The jobs must continue.
func TestRedisAwayFor40SecondsWhileJobsRun(t *testing.T) {
	const away = 40 * time.Second
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.6"}) // SUCCESS_SLOW takes 54 s
	ids := u.submitMany(api, 4, execute("SUCCESS_SLOW"))
	s.await("RUNNING", ids...)
	require.NoError(t, s.redis.Kill())
	time.Sleep(away) // the test needs an outage of this duration
	require.Equal(t, 4, s.countJobs(ids, "RUNNING"))
	require.NoError(t, s.redis.Start(t.Context()))
	s.await("SUCCEEDED", ids...)
	for _, id := range ids {
		require.EqualValues(t, 1, u.get(api, id).value("attempt"))
	}
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1`))
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	s.checkInvariants()
}

// Retention uses the clock of the test bed. The cleaner runs twice per minute of real time.
func TestRetentionFollowsTheClock(t *testing.T) {
	_, api, u := newWorking(t, testBed, env{"FORGERUN_RETENTION_JOBS": "240h"})
	id := u.submitAndAwait(api, "SUCCEEDED", custom(`{}`))
	u.moveClock(api, `{"advance":"241h"}`)
	eventually(t, "the job is deleted", func() bool { return u.call(api, "GET", "/v1/jobs/"+id, "").status == http.StatusGone })
}
