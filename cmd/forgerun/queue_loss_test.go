package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// losses are kinds of damage to the queue in Redis. Evictions, operators or other programs can cause such damage.
var losses = map[string]func(r lossy){
	"FLUSHALL":              func(r lossy) { r.do("FLUSHALL") },
	"list deleted":          func(r lossy) { r.do("DEL", r.key("pending")) },
	"list cut in half":      func(r lossy) { r.do("LTRIM", r.key("pending"), 0, lostJobs/2) },
	"list is a string":      func(r lossy) { r.do("SET", r.key("pending"), "x") },
	"half of the tasks":     func(r lossy) { r.each(lostJobs/2, func(key string) { r.do("DEL", key) }) },
	"tasks are strings":     func(r lossy) { r.each(lostJobs, func(key string) { r.do("SET", key, "x") }) },
	"tasks without message": func(r lossy) { r.each(lostJobs, func(key string) { r.do("HDEL", key, "msg") }) },
}

const lostJobs = 300

type lossy struct {
	t     *testing.T
	rdb   *redis.Client
	queue string
}

func (r lossy) key(name string) string { return "asynq:{" + r.queue + "}:" + name }

func (r lossy) do(command ...any) {
	r.t.Helper()
	require.NoError(r.t, r.rdb.Do(r.t.Context(), command...).Err(), command)
}

func (r lossy) each(n int, damage func(key string)) {
	r.t.Helper()
	keys, err := r.rdb.Keys(r.t.Context(), strings.NewReplacer("{", `\{`, "}", `\}`).Replace(r.key("t:"))+"*").Result()
	require.NoError(r.t, err)
	require.NotEmpty(r.t, keys)
	for _, key := range keys[:min(n, len(keys))] {
		damage(key)
	}
}

func (r lossy) awaitPending(n int64) {
	r.t.Helper()
	eventually(r.t, fmt.Sprint(n, " tasks are pending"), func() bool { return r.rdb.LLen(r.t.Context(), r.key("pending")).Val() >= n })
}

func TestJobsSurviveQueueLoss(t *testing.T) {
	t.Parallel()
	for name, damage := range losses {
		t.Run(name, func(t *testing.T) {
			s, api, u := newService(t)
			r := lossy{t, s.rdb, "jobs"}
			ids := u.submitMany(api, lostJobs, execute("PAYLOAD_SMALL"))
			r.awaitPending(lostJobs)
			damage(r)
			s.startWorker()
			ids = append(ids, u.submitMany(api, 10, execute("PAYLOAD_SMALL"))...)
			s.await("SUCCEEDED", ids...)
			require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE fence <> 1 OR attempt <> 1`), "no job ran twice")
			s.checkInvariants()
		})
	}
}

// Another program replaces one of the queue's Redis keys with a value of another type. The worker continues.
func TestQueueIsDamagedUnderAWorker(t *testing.T) {
	s, api, u := newWorking(t)
	s.await("SUCCEEDED", u.submit(api, execute("PAYLOAD_SMALL")))
	r := lossy{t, s.rdb, "jobs"}
	for _, name := range []string{"pending", "active", "lease", "scheduled", "retry"} {
		r.do("DEL", r.key(name))
		r.do("SET", r.key(name), "x")
		s.await("SUCCEEDED", u.submitMany(api, 20, execute("PAYLOAD_SMALL"))...)
	}
	s.checkInvariants()
}

func TestDeferredJobsSurviveQueueLoss(t *testing.T) {
	for name, damage := range map[string]func(lossy){
		"FLUSHALL":          func(r lossy) { r.do("FLUSHALL") },
		"set deleted":       func(r lossy) { r.do("DEL", r.key("scheduled")) },
		"set is a string":   func(r lossy) { r.do("SET", r.key("scheduled"), "x") },
		"half of the tasks": func(r lossy) { r.each(lostJobs/2, func(key string) { r.do("DEL", key) }) },
		"scheduled for later": func(r lossy) {
			waiting, err := r.rdb.ZRange(r.t.Context(), r.key("scheduled"), 0, -1).Result()
			require.NoError(r.t, err)
			for _, task := range waiting {
				r.do("ZINCRBY", r.key("scheduled"), 3600, task)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, api, u := newWorking(t)
			r := lossy{t, s.rdb, "jobs"}
			ids := u.submitMany(api, 50, s.deferredBy(3*time.Second))
			eventually(t, "the jobs are scheduled", func() bool { return s.rdb.ZCard(t.Context(), r.key("scheduled")).Val() == 50 })
			damage(r)
			s.await("SUCCEEDED", ids...)
			s.requireNotEarly(ids)
			s.checkInvariants()
		})
	}
}

func TestDeliveriesSurviveQueueLoss(t *testing.T) {
	for _, name := range []string{"FLUSHALL", "list deleted", "tasks are strings"} { // the other losses need more than one waiting task
		t.Run(name, func(t *testing.T) {
			s, api, u := newWorking(t, hooks)
			received := u.receive(api, nil)
			ids := u.submitMany(api, 20, execute("WEBHOOK_SUCCESS"))
			s.await("SUCCEEDED", ids...)
			r := lossy{t, s.rdb, "webhooks"}
			r.awaitPending(1)
			losses[name](r)
			s.startDeliverer()
			s.requireAllDelivered(received, ids)
		})
	}
}
