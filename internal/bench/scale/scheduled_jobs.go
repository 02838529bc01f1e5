package scale

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// Targets of many jobs that are due in the same second.
const (
	scheduledJobs      = 100_000
	latenessTarget     = 2.0 // s
	meanwhileTarget    = 2.0 // times the p99 without them
	meanwhileAllowance = 20.0
	scheduledNotice    = 10 * time.Second // between the seeding's end and the moment, at least
)

// meanwhile is what is submitted while the jobs become due.
var meanwhile = loadgen.OpenLoop{Rate: 200, During: time.Second, Connections: 64}

// Scheduled has 100,000 jobs become due at one moment, with an api process alone: no
// worker takes any of them, so what is measured is the scheduler.
func Scheduled(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	jobs := l.Options.Jobs(scheduledJobs)
	err = l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
		d.Client = sys.Client
		_, _ = meanwhile.Submit(ctx, sys.Target) // the warm-up
		at := time.Now().Add(scheduledNotice + time.Duration(jobs)*200*time.Microsecond).Truncate(time.Second).Add(time.Second)
		l.Printf("seeding %d jobs for %s", jobs, at.Format(time.TimeOnly))
		if err := seedScheduledJobs(ctx, d, jobs, at); err != nil {
			return err
		}
		if left := time.Until(at); left < scheduledNotice/2 {
			return fmt.Errorf("the seeding took so long that the jobs are due in %v already", left)
		}
		before, err := submitFor(ctx, sys, time.Until(at)-3*time.Second)
		if err != nil {
			return err
		}
		lab.Pause(ctx, time.Until(at)-time.Second)
		during, err := submitFor(ctx, sys, max(l.Options.Duration, 4*time.Second))
		if err != nil {
			return err
		}
		late, early, err := lateness(ctx, d, at, jobs)
		l.Printf("all QUEUED %.2f s after their time; submit p99 %.2f ms, %.2f ms without them", late, during, before)
		name := short(jobs) + " jobs scheduled for one second: "
		list = []figures.Figure{
			figures.AtMost(name+"all QUEUED within", latenessTarget, late, "s", "no worker runs"),
			figures.AtMost(name+"QUEUED early", 0, early, "jobs", ""),
			figures.AtMost(name+"submit p99 meanwhile", max(meanwhileTarget*before, meanwhileAllowance), during, "ms",
				fmt.Sprintf("%.2f ms without them, at %.0f/s, open loop", before, meanwhile.Rate)),
		}
		return err
	})
	return list, err
}

// submitFor submits at a modest rate and gives the p99 in milliseconds.
func submitFor(ctx context.Context, sys lab.System, d time.Duration) (p99 float64, err error) {
	loop := meanwhile
	loop.During = d
	got, err := loop.Submit(ctx, sys.Target)
	return loadgen.Milliseconds(got.FromDue.Quantile(99, http.StatusAccepted)), err
}

// lateness waits until the jobs that were scheduled are QUEUED, and gives the
// longest time in seconds that one was late by, and how many were early.
func lateness(ctx context.Context, d *lab.Database, at time.Time, jobs int) (late, early float64, err error) {
	err = lab.Poll(ctx, 2*time.Minute, "all scheduled jobs QUEUED", func() (bool, error) {
		left, err := d.Number(ctx, "SELECT count(*) FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT 1) w")
		return left == 0, err
	})
	if err != nil {
		return 0, 0, err
	}
	var n int
	err = d.Conn.QueryRow(ctx, `SELECT count(*), coalesce(max(extract(epoch FROM queued_at - $2)), 0)::float8,
			(count(*) FILTER (WHERE queued_at < $2))::float8
		FROM jobs WHERE client_id = $1 AND type = 'DEFERRED'`, d.Client, at).Scan(&n, &late, &early)
	if err == nil && n != jobs {
		err = fmt.Errorf("there are %d jobs of %d", n, jobs)
	}
	return late, early, err
}
