package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const sharedLimit = 50

func limitedStack(t *testing.T) *stack {
	limit := fmt.Sprint(sharedLimit)
	return newStack(t, env{
		"FORGERUN_MAX_ACTIVE_JOBS": limit, "FORGERUN_MAX_QUEUE_SIZE": limit, "FORGERUN_CLIENT_MAX_ACTIVE": limit,
		"FORGERUN_RATE_LIMIT_PER_MINUTE": "100000",
	})
}

func (u *user) burst(n int, body string, apis ...*proc) int {
	var accepted atomic.Int64
	var all sync.WaitGroup
	for _, api := range apis {
		for i := range n {
			all.Go(func() {
				if i%6 != 5 {
					if u.call(api, "POST", "/v1/jobs", body).status == http.StatusAccepted {
						accepted.Add(1)
					}
					return
				}
				if u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+strings.Repeat(body+",", 3)+body+`]}`).status == http.StatusAccepted {
					accepted.Add(4)
				}
			})
		}
	}
	all.Wait()
	return int(accepted.Load())
}

func (s *stack) active() int { return s.count(`SELECT count(*) FROM jobs WHERE finished_at IS NULL`) }

// fillUp submits single jobs to the processes in turns until sharedLimit jobs are active.
func (u *user) fillUp(body string, apis ...*proc) {
	u.s.t.Helper()
	turn := 0
	eventually(u.s.t, "the limit is reached", func() bool {
		turn++
		u.call(apis[turn%len(apis)], "POST", "/v1/jobs", body)
		return u.s.active() >= sharedLimit
	})
	for i := range 20 {
		a := u.call(apis[i%len(apis)], "POST", "/v1/jobs", body)
		a.requireProblem(u.s.t, http.StatusServiceUnavailable, "RFA_EXEC_QUEUE_FULL")
	}
	require.Equal(u.s.t, sharedLimit, u.s.active())
}

func (s *stack) cancelSome() {
	s.t.Helper()
	s.exec(`UPDATE jobs SET state = 'CANCELED', outcome = 'CANCELED', finished_at = now()
		WHERE job_id IN (SELECT job_id FROM jobs WHERE finished_at IS NULL LIMIT 20)`)
}

// Several processes together keep the limits of active and queued jobs, with and without Redis.
// Promise: contract 17
func TestLimitsHoldOverProcesses(t *testing.T) {
	for name, body := range map[string]string{"queued": execute("PAYLOAD_SMALL"), "active": deferred(time.Hour)} {
		t.Run(name, func(t *testing.T) {
			s := limitedStack(t)
			apis := []*proc{s.startLeader(), s.startAPI()}
			u := s.newUser(apis[0])
			if name == "active" {
				require.NoError(t, s.redis.Kill())
			}
			first := u.keyed(apis[0], "first", "/v1/jobs", body).text("job_id")
			for range 3 {
				u.burst(72, body, apis...)
				require.LessOrEqual(t, s.active(), sharedLimit)
			}
			u.fillUp(body, apis...)
			require.Equal(t, first, u.keyed(apis[1], "first", "/v1/jobs", body).text("job_id"), "a repetition is not refused")
			for range 3 { // an ended job makes room for one new job, not for one in each process
				s.cancelSome()
				u.burst(72, body, apis...)
				require.LessOrEqual(t, s.active(), sharedLimit)
			}
			u.fillUp(body, apis[1], apis[0])
		})
	}
}

func TestLimitsHoldAfterPauseAndKill(t *testing.T) {
	s := limitedStack(t)
	one, two := s.startLeader(), s.startAPI()
	u := s.newUser(one)
	u.burst(10, deferred(time.Hour), one, two)
	two.pause()
	u.fillUp(deferred(time.Hour), one)
	var late sync.WaitGroup
	late.Go(func() { u.burst(30, deferred(time.Hour), two) })
	two.resume()
	late.Wait()
	u.burst(30, deferred(time.Hour), one, two)
	require.Equal(t, sharedLimit, s.active())

	s.cancelSome()
	u.burst(5, deferred(time.Hour), two)
	two.kill()
	u.burst(72, deferred(time.Hour), one)
	require.LessOrEqual(t, s.active(), sharedLimit)
	u.fillUp(deferred(time.Hour), one)
}

// Without Redis, each of n processes allows 1/n of the rate limit.
// Promise: contract 17, 18
func TestRateLimitIsDividedWithoutRedis(t *testing.T) {
	const limit = 30
	s := newStack(t, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": fmt.Sprint(limit)})
	apis := []*proc{s.startLeader(), s.startAPI()}
	u := s.newUser(apis[0])
	require.NoError(t, s.redis.Kill())
	eventually(t, "the processes know each other", func() bool {
		return apis[0].metric("api_processes") == 2 && apis[1].metric("api_processes") == 2
	})
	passed := 0
	for i := range 4 * limit {
		if u.call(apis[i%2], "GET", "/v1/jobs/"+unknownJob, "").status == http.StatusNotFound {
			passed++
		}
	}
	require.LessOrEqual(t, passed, limit)
	require.GreaterOrEqual(t, passed, limit-2)
}

func TestDeliveriesCountForTheClient(t *testing.T) {
	s := newStack(t, hooks, env{"FORGERUN_TESTBED": "true", "FORGERUN_RATE_LIMIT_PER_MINUTE": "6000"})
	api := s.startLeader()
	u, other := s.newUser(api), s.newUser(api)
	for range 10 {
		u.subscribe(api, "http://127.0.0.1:10/", "event.emitted")
	}
	// 100 events, up to 4 attempts, 10 webhooks: 4,000 deliveries
	many := custom(`{"emit":[` + strings.Repeat(`{"name":"x"},`, 99) + `{"name":"x"}]}`)
	u.submit(api, many)
	a := u.trySubmit(api, many)
	a.requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	require.Contains(t, a.body, "This submission counts as 4000")
	u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+many+`]}`).requireProblem(t, http.StatusTooManyRequests, "RFA_REQUEST_RATE_LIMITED")
	u.submit(api, execute("PAYLOAD_SMALL"))
	for range 20 {
		other.submit(api, many) // this client has no webhook
	}
}
