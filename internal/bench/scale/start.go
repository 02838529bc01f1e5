package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// Target of a start with many live jobs.
const (
	startTarget = 1.0 // s
	startRounds = 5
)

// Start starts an api process with a million live jobs in the tables and an empty
// Redis, again and again.
func Start(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	jobs := l.Options.Jobs(queuedJobs)
	if err := needDisk(uint64(jobs)*bytesOfQueued + spareDisk); err != nil {
		return nil, err
	}
	l.Printf("seeding %d queued jobs", jobs)
	err = withSeeded(ctx, l, seedQueuedJobs, jobs, func(d *lab.Database) error {
		var sys lab.System
		err := lab.Serve(ctx, d, l.Options.With(unlimited...), l.StartService, func(s lab.System) error {
			sys = s
			return nil
		})
		if err != nil {
			return err
		}
		redis, err := d.Redis()
		if err != nil {
			return err
		}
		defer func() { _ = redis.Close() }()
		var ready, accepted []float64
		for range startRounds {
			if err := redis.FlushDB(ctx).Err(); err != nil {
				return err
			}
			r, a, err := startOnce(ctx, l, sys)
			if err != nil {
				return err
			}
			l.Printf("ready after %.0f ms, first job accepted after %.0f", loadgen.Milliseconds(r), loadgen.Milliseconds(a))
			ready, accepted = append(ready, r.Seconds()), append(accepted, a.Seconds())
		}
		list = []figures.Figure{figures.AtMost(fmt.Sprintf("start of an api process with %s live jobs, ready", short(jobs)), startTarget,
			figures.Median(ready), "s", fmt.Sprintf("Redis empty; first job accepted after %.2f s", figures.Median(accepted)))}
		return nil
	})
	return list, err
}

// startOnce starts the api process anew, at the address that it had, and gives the
// times from its start until it is ready and until it has accepted a job.
func startOnce(ctx context.Context, l *lab.Lab, sys lab.System) (ready, accepted time.Duration, err error) {
	began := time.Now()
	api, err := l.Launch(sys, "api")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, api.Stop()) }()
	client := &http.Client{Timeout: lab.ReadyWithin}
	defer client.CloseIdleConnections()
	for !isReady(client, sys) {
		if time.Since(began) > lab.ReadyWithin {
			return 0, 0, api.Late()
		}
		lab.Pause(ctx, time.Millisecond)
	}
	ready = time.Since(began)
	submitting := loadgen.NewClient(1)
	defer submitting.CloseIdleConnections()
	err = loadgen.NewSubmission(submitting, sys.Target).Send()
	return ready, time.Since(began), err
}

func isReady(client *http.Client, sys lab.System) bool {
	response, err := client.Get(sys.Base + "/readyz")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
