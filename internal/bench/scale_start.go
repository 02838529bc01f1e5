package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Target of a start with many live jobs.
const (
	startTarget = 1.0 // s
	startRounds = 5
)

// scaleStart starts an api process with a million live jobs in the tables and an
// empty Redis, again and again.
func scaleStart(ctx context.Context, l *lab) ([]figure, error) {
	jobs := seeded(queuedJobs)
	if err := needDisk(uint64(jobs)*bytesOfQueued + spareDisk); err != nil {
		return nil, err
	}
	l.say("seeding %d queued jobs", jobs)
	d, key, err := l.seededDatabase(ctx, func(d *database, client uuid.UUID) error { return seedQueuedJobs(ctx, d, client, jobs) })
	if d != nil {
		defer func() { _ = l.drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	}
	if err != nil {
		return nil, err
	}
	var sys system
	if err := l.serve(ctx, d, key, roomy, func(s system) error { sys = s; return nil }); err != nil {
		return nil, err
	}
	redis, err := redisClient(d.redis)
	if err != nil {
		return nil, err
	}
	defer func() { _ = redis.Close() }()
	var ready, accepted []float64
	for range startRounds {
		if err := redis.FlushDB(ctx).Err(); err != nil {
			return nil, err
		}
		r, a, err := l.startOnce(ctx, sys)
		if err != nil {
			return nil, err
		}
		l.say("ready after %.0f ms, first job accepted after %.0f", milliseconds(r), milliseconds(a))
		ready, accepted = append(ready, r.Seconds()), append(accepted, a.Seconds())
	}
	return []figure{atMost(fmt.Sprintf("start of an api process with %s live jobs, ready", short(jobs)), startTarget, median(ready), "s",
		fmt.Sprintf("Redis empty; first job accepted after %.2f s", median(accepted)))}, nil
}

// startOnce starts the api process anew, at the address that it had, and gives the
// times from its start until it says that it is ready and until it has accepted a
// job.
func (l *lab) startOnce(ctx context.Context, sys system) (ready, accepted time.Duration, err error) {
	began := time.Now()
	api, err := launch(l.forgerun, sys.env, "api")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, api.stop()) }()
	client := &http.Client{Timeout: readyWithin}
	defer client.CloseIdleConnections()
	for !isReady(ctx, client, sys) {
		if time.Since(began) > readyWithin {
			return 0, 0, api.late()
		}
		pause(ctx, time.Millisecond)
	}
	ready = time.Since(began)
	submitting := newClient(1)
	defer submitting.CloseIdleConnections()
	err = newSubmission(submitting, sys).send()
	return ready, time.Since(began), err
}

func isReady(ctx context.Context, client *http.Client, sys system) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, sys.base+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
