package main

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRateLimitIsSharedByAllProcesses(t *testing.T) {
	t.Parallel()
	const limit = 120
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": strconv.Itoa(limit)})
	apis := []*proc{s.startAPI(), s.startAPI()}
	u := s.newUser(apis[0])
	passed, last := 0, answer{}
	for i, refusedInARow := 0, 0; refusedInARow < 6; i++ { // three times by each
		a := u.call(apis[i%2], "GET", "/v1/jobs/"+nowhere, "", "X-Forwarded-For", "203.0.113."+strconv.Itoa(i%256)) // changes nothing
		if a.status == http.StatusTooManyRequests {
			refusedInARow, last = refusedInARow+1, a
			continue
		}
		require.Equal(t, http.StatusNotFound, a.status, a.body)
		require.NotEmpty(t, a.header.Get("Ratelimit"))
		passed, refusedInARow = passed+1, 0
	}
	const held = 2 * limit / 60 // what processes may hold unused for a moment
	require.GreaterOrEqual(t, passed, limit-held)
	require.LessOrEqual(t, passed, limit)
	last.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")

	other := s.newUser(apis[1])
	require.Equal(t, http.StatusNotFound, other.look(apis[0], other.key).status, "another client is not concerned")
}

// Two processes are asked for more than a minute, faster than the limit allows. Whatever passed, no span of 60 seconds has more
// than the limit; a burst of all of it passes, and so does a request that waited for as long as the refusal says.
func TestNoMinuteHasMoreRequestsThanTheLimit(t *testing.T) {
	t.Parallel()
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
		require.True(t, ok, "a burst of the whole limit passes")
	}
	var free time.Time
	freed := false // one passed; when the next may depends on how long the burst took
	for i := 0; free.IsZero() || time.Now().Before(free); i++ {
		var a answer
		if a, freed = send(apis[i%2]); freed {
			require.Less(t, time.Until(free), time.Second, "Retry-After is the first whole second after the time")
			break
		}
		require.Contains(t, a.header.Get("Ratelimit"), `"minute";r=0;t=`)
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		require.NoError(t, err)
		require.LessOrEqual(t, wait, 61)
		if free.IsZero() {
			free = time.Now().Add(time.Duration(wait) * time.Second)
		}
		time.Sleep(min(250*time.Millisecond, time.Until(free))) // the pace at which it is tried
	}
	if !freed {
		time.Sleep(time.Until(free))
		_, freed = send(apis[1])
	}
	require.True(t, freed, "after as long as Retry-After said")
	for i := range 4 * limit {
		send(apis[i%2])
	}
	for _, api := range apis {
		require.NotContains(t, api.log.String(), "the shared rate limit", "it did not answer for half a second: nothing was shown")
	}
	for i := limit; i < len(passed); i++ {
		require.GreaterOrEqual(t, passed[i].answered.Sub(passed[i-limit].sent), time.Minute, "requests %d to %d", i-limit, i)
	}
}

func TestDailyQuota(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_DAILY_QUOTA": "5"})
	api := s.startAPI()
	u := s.newUser(api)
	for range 5 {
		require.Equal(t, http.StatusNotFound, u.look(api, u.key).status)
	}
	u.look(api, u.key).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
}

func TestQueueLimitRefusesAndStillReplays(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{
		"FORGERUN_MAX_QUEUE_SIZE": "5", "FORGERUN_MAX_ACTIVE_JOBS": "7", "FORGERUN_CLIENT_MAX_QUEUED": "5", "FORGERUN_CLIENT_MAX_ACTIVE": "7",
	})
	api := s.startLeader()
	u := s.newUser(api)
	first := execute("PAYLOAD_SMALL", `"idempotency_key":"first"`)
	// For a moment a job may count twice, as accepted here and as found in
	// storage: room may be refused, but is never given twice.
	fill := func(body func() string) {
		eventually(t, "there is room", func() bool { return u.trySubmit(api, body()).status == http.StatusAccepted })
	}
	id := u.submit(api, first)
	for range 4 {
		fill(func() string { return execute("PAYLOAD_SMALL") })
	}
	u.trySubmit(api, execute("PAYLOAD_SMALL")).requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	replayed := u.trySubmit(api, first)
	require.Equal(t, http.StatusAccepted, replayed.status, replayed.body)
	require.Equal(t, id, replayed.text("job_id"))
	require.Equal(t, "true", replayed.header.Get("Idempotency-Replayed"))

	later := func() string { return deferred(5 * time.Second) } // waits, but is not queued yet
	fill(later)
	fill(later)
	u.trySubmit(api, later()).requireProblem(t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	require.Equal(t, 7, s.count(`SELECT count(*) FROM jobs`))

	s.startWorker()
	s.await("SUCCEEDED", s.acceptedIDs()...)
	eventually(t, "there is room again", func() bool { return u.trySubmit(api, execute("PAYLOAD_SMALL")).status == http.StatusAccepted })
	s.await("SUCCEEDED", s.acceptedIDs()...)
	s.checkInvariants()
}

func TestBodyLimits(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_MAX_BODY_BYTES": "4096", "FORGERUN_MAX_PAYLOAD_BYTES": "1024"})
	api := s.startAPI()
	u := s.newUser(api)
	filler := func(n int) string { return execute("PAYLOAD_SMALL", `"params":{"x":"`+strings.Repeat("a", n)+`"}`) }
	u.submit(api, filler(1000))
	u.trySubmit(api, filler(1100)).requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	u.trySubmit(api, filler(5000)).requireProblem(t, http.StatusRequestEntityTooLarge, "RFA_REQUEST_PAYLOAD_TOO_LARGE")
	u.trySubmit(api, filler(3<<20)).requireProblem(t, http.StatusRequestEntityTooLarge, "RFA_REQUEST_PAYLOAD_TOO_LARGE")
	endless, err := http.NewRequest("POST", api.url+"/v1/jobs", io.LimitReader(zeros{}, 3<<20)) // without a length
	require.NoError(t, err)
	endless.Header.Set("Authorization", "Bearer "+u.key)
	endless.Header.Set("Content-Type", "application/json")
	response, err := s.http.Do(endless)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM jobs`))
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}
