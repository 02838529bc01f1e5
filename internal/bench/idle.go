package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Targets at idle.
const (
	prompt50Target = 6.0  // ms
	prompt99Target = 20.0 // ms
	restTarget     = 1.0  // % of a core
)

const (
	idleJobs = 500
	// restWindow is how long nothing is done while the CPU time is taken.
	restWindow = 10 * time.Second
	// settling is what a system gets to become quiet.
	settling = 2 * time.Second
)

// idle measures how soon a single job runs when there is nothing else to do, and
// what waiting for it costs.
func idle(ctx context.Context, l *lab) ([]figure, error) {
	var p50, p99, rest []float64
	err := l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) error {
		for range l.o.rounds {
			var with, without usage
			err := withWorker(sys, func(worker *program) error {
				pause(ctx, settling)
				starts, err := startsOneByOne(ctx, d, sys, idleJobs)
				if err != nil {
					return err
				}
				p50, p99 = append(p50, milliseconds(quantile(starts, 50))), append(p99, milliseconds(quantile(starts, 99)))
				l.say("%d single jobs: submit to RUNNING p50 %v, p99 %v, at most %v", idleJobs, round(quantile(starts, 50)), round(quantile(starts, 99)), round(quantile(starts, 100)))
				with = l.rest(ctx, sys, worker)
				return nil
			})
			if err != nil {
				return err
			}
			without = l.rest(ctx, sys)
			rest = append(rest, with.coreShare()-without.coreShare())
			l.say("at rest: %.2f %% of a core with a worker (it %.2f, Postgres %.2f, Redis %.2f), %.2f without it", with.coreShare(),
				100*with.worker/with.took, 100*with.postgres/with.took, 100*with.redis/with.took, without.coreShare())
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return []figure{
		atMost("submit to RUNNING at idle, p50", prompt50Target, median(p50), "ms", fmt.Sprintf("%d single jobs", idleJobs)),
		atMost("submit to RUNNING at idle, p99", prompt99Target, median(p99), "ms", ""),
		atMost("CPU of an idle worker process and on its behalf", restTarget, median(rest), "% of a core",
			fmt.Sprintf("with it less without it, %v each", restWindow)),
	}, nil
}

// coreShare is what worker, Postgres and Redis took, in percent of a core.
func (u usage) coreShare() float64 { return 100 * (u.worker + u.postgres + u.redis) / u.took }

// rest lets a system do nothing for a while.
func (l *lab) rest(ctx context.Context, sys system, workers ...*program) usage {
	pause(ctx, settling)
	before := l.usage(sys, workers...)
	pause(ctx, restWindow)
	return l.usage(sys, workers...).since(before)
}

// startsOneByOne submits single jobs with random gaps, long enough for the one
// before to be over, and gives the times from just before a request is sent to the
// started_at of its job: the clock is the same, the database's on this machine.
func startsOneByOne(ctx context.Context, d *database, sys system, n int) (*hdrhistogram.Histogram, error) {
	client := newClient(1)
	defer client.CloseIdleConnections()
	s := newSubmission(client, sys)
	sent := make(map[uuid.UUID]time.Time, n)
	began := time.Now()
	for range n {
		pause(ctx, time.Duration(5+rand.IntN(10))*time.Millisecond)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		at := time.Now()
		if err := s.send(); err != nil {
			return nil, err
		}
		var receipt struct {
			ID uuid.UUID `json:"job_id"`
		}
		if err := json.Unmarshal(s.response.Body(), &receipt); err != nil {
			return nil, err
		}
		sent[receipt.ID] = at
	}
	if err := allFinished(ctx, d, began, n, time.Minute); err != nil {
		return nil, err
	}
	rows, err := d.conn.Query(ctx, "SELECT job_id, started_at FROM jobs WHERE created_at >= $1", began)
	if err != nil {
		return nil, err
	}
	starts := newHistogram()
	var id uuid.UUID
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		record(starts, at.Sub(sent[id]))
		return nil
	})
	return starts, err
}
