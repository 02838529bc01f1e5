//go:build slow

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Without Redis, asynq abandons a running handler after 30 s. The handler's job must continue.
func TestRedisAwayFor40SecondsWhileJobsRun(t *testing.T) {
	const away = 40 * time.Second
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "0.6"}) // SUCCESS_SLOW takes 54 s
	ids := u.submitMany(api, 4, execute("SUCCESS_SLOW"))
	s.await("RUNNING", ids...)
	require.NoError(t, s.redis.Kill())
	time.Sleep(away)
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

func TestRetentionFollowsTheClock(t *testing.T) {
	_, api, u := newWorking(t, testBed, env{"FORGERUN_RETENTION_JOBS": "240h"})
	id := u.submitAndAwait(api, "SUCCEEDED", custom(`{}`))
	u.moveClock(api, `{"advance":"241h"}`)
	eventually(t, "the job is deleted", func() bool { return u.call(api, "GET", "/v1/jobs/"+id, "").status == http.StatusGone })
}
