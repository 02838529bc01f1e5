package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Targets of many jobs that are due in the same second.
const (
	scheduledJobs   = 100_000
	latenessTarget  = 2.0 // s
	unharmedBy      = 2.0 // times the p99 without them
	unharmedAnyway  = 20.0
	lightRate       = 200.0 // submissions a second meanwhile
	lightClients    = 64
	scheduledNotice = 10 * time.Second // between the seeding's end and the moment, at least
)

// scaleScheduled has 100,000 jobs become due at one moment, with an api process
// alone: no worker takes any of them, so what is seen is the scheduler.
func scaleScheduled(ctx context.Context, l *lab) (figures []figure, err error) {
	jobs := seeded(scheduledJobs)
	err = l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) error {
		client, err := clientOf(ctx, d, sys.key)
		if err != nil {
			return err
		}
		openLoop(ctx, sys, lightRate, time.Second, lightClients) // the warm-up
		at := time.Now().Add(scheduledNotice + time.Duration(jobs)*200*time.Microsecond).Truncate(time.Second).Add(time.Second)
		l.say("seeding %d jobs for %s", jobs, at.Format(time.TimeOnly))
		if err := seedScheduledJobs(ctx, d, client, jobs, at); err != nil {
			return err
		}
		if left := time.Until(at); left < scheduledNotice/2 {
			return fmt.Errorf("the seeding took so long that the jobs are due in %v already", left)
		}
		without, err := light(ctx, sys, time.Until(at)-3*time.Second)
		if err != nil {
			return err
		}
		pause(ctx, time.Until(at)-time.Second)
		meanwhile, err := light(ctx, sys, max(l.o.duration, 4*time.Second))
		if err != nil {
			return err
		}
		late, early, err := lateness(ctx, d, client, at, jobs)
		l.say("all QUEUED %.2f s after their time; submit p99 %.2f ms, %.2f ms without them", late, meanwhile, without)
		figures = scheduledFigures(jobs, late, early, meanwhile, without)
		return err
	})
	return figures, err
}

func scheduledFigures(jobs int, late, early, meanwhile, without float64) []figure {
	name := short(jobs) + " jobs scheduled for one second: "
	return []figure{
		atMost(name+"all QUEUED within", latenessTarget, late, "s", "no worker runs"),
		atMost(name+"QUEUED early", 0, early, "jobs", ""),
		atMost(name+"submit p99 meanwhile", max(unharmedBy*without, unharmedAnyway), meanwhile, "ms",
			fmt.Sprintf("%.2f ms without them, at %.0f/s, open loop", without, lightRate)),
	}
}

// light submits at a modest rate and gives the p99 in milliseconds.
func light(ctx context.Context, sys system, d time.Duration) (p99 float64, err error) {
	o := openLoop(ctx, sys, lightRate, d, lightClients)
	if refused := o.sent - o.statuses[http.StatusAccepted]; refused > 0 {
		err = fmt.Errorf("%d of %d requests were not accepted: %v", refused, o.sent, o.statuses)
	}
	return milliseconds(o.quantile(http.StatusAccepted, 99)), err
}

// lateness waits until the jobs that were scheduled are QUEUED, and gives the
// longest time in seconds that one was late by, and how many were early.
func lateness(ctx context.Context, d *database, client uuid.UUID, at time.Time, jobs int) (late, early float64, err error) {
	err = poll(ctx, 2*time.Minute, "all scheduled jobs QUEUED", func() (bool, error) {
		left, err := d.number(ctx, "SELECT count(*) FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT 1) w")
		return left == 0, err
	})
	if err != nil {
		return 0, 0, err
	}
	var n int
	err = d.conn.QueryRow(ctx, `SELECT count(*), coalesce(max(extract(epoch FROM queued_at - $2)), 0)::float8, (count(*) FILTER (WHERE queued_at < $2))::float8
		FROM jobs WHERE client_id = $1 AND type = 'DEFERRED'`, client, at).Scan(&n, &late, &early)
	if err == nil && n != jobs {
		err = fmt.Errorf("there are %d jobs of %d", n, jobs)
	}
	return late, early, err
}
