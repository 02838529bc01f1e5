package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

// Targets of overload.
const (
	overload         = 2.0   // times the peak
	goodputTarget    = 0.9   // of the peak
	refusalTarget    = 100.0 // ms
	overloadTime     = 15 * time.Second
	overloadPatience = time.Second // of the generator, when all its connections wait
)

// Overload offers twice of what can be accepted, and measures what becomes of it.
func Overload(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	err = l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
		if _, err := accept(ctx, l, sys); err != nil { // the warm-up
			return err
		}
		before, err := accept(ctx, l, sys)
		if err != nil {
			return err
		}
		loop := loadgen.OpenLoop{Rate: overload * before, During: overloadTime, Patience: overloadPatience}
		loop.Connections = overloadConnections(before)
		ids, got := submitAll(ctx, sys, loop)
		l.Printf("%.0f/s offered over %d connections: %v", loop.Rate, loop.Connections, &got)
		after, err := accept(ctx, l, sys)
		if err != nil {
			return err
		}
		l.Printf("peak %.0f/s before and %.0f/s after", before, after)
		lost, err := countLost(ctx, d, sys, ids)
		if err != nil {
			return err
		}
		list = overloadFigures(got, (before+after)/2, lost)
		return ctx.Err()
	})
	return list, err
}

// overloadConnections are as many as requests that are accepted within half a second:
// few clients would hold back by themselves what is to be refused.
func overloadConnections(peak float64) int { return min(max(1024, int(peak/2)), 8192) }

func overloadFigures(got loadgen.Answers, peak float64, lost int) []figures.Figure {
	good := got.Count(http.StatusAccepted)
	refused := got.Count(http.StatusTooManyRequests, http.StatusServiceUnavailable)
	acceptedP99 := loadgen.Milliseconds(got.FromSent.Quantile(99, http.StatusAccepted))
	refusedP99 := loadgen.Milliseconds(got.FromSent.Quantile(99, http.StatusTooManyRequests, http.StatusServiceUnavailable))
	other := got.Offered - got.Unsent - good - refused
	goodput := float64(good) / got.Took.Seconds()
	return []figures.Figure{
		figures.AtLeast("overload, twice the peak offered: goodput", goodputTarget, goodput/peak, "x peak",
			fmt.Sprintf("%.0f/s to %.0f/s; %d offered, %d not sent for lack of a connection", goodput, peak, got.Offered, got.Unsent)),
		figures.AtMost("overload: p99 of refusals", refusalTarget, refusedP99, "ms",
			fmt.Sprintf("%d refused; p99 of accepted %.0f ms", refused, acceptedP99)),
		figures.AtMost("overload: answers other than 202, 429 and 503", 0, float64(other), "answers", ""),
		figures.AtMost("overload: accepted jobs lost", 0, float64(lost), "jobs", fmt.Sprintf("of %d, all finished by a worker afterwards", good)),
	}
}

// submitAll offers submissions and gives the jobs that were accepted; a receipt
// without an id gives a job that does not exist.
func submitAll(ctx context.Context, sys lab.System, loop loadgen.OpenLoop) (accepted []uuid.UUID, got loadgen.Answers) {
	client := loadgen.NewClient(loop.Connections)
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	got = loop.Run(ctx, func() func() int {
		s := loadgen.NewSubmission(client, sys.Target)
		return func() int {
			status := s.Status()
			if status == http.StatusAccepted {
				id, _ := s.JobID()
				mu.Lock()
				defer mu.Unlock()
				accepted = append(accepted, id)
			}
			return status
		}
	})
	return accepted, got
}

// countLost counts accepted jobs that do not exist, or do not finish when a worker
// runs.
func countLost(ctx context.Context, d *lab.Database, sys lab.System, accepted []uuid.UUID) (lost int, err error) {
	missing := func(sql string) (n int, err error) {
		for ids := range slices.Chunk(accepted, 10_000) {
			found, err := d.Number(ctx, "SELECT count(*) FROM jobs WHERE job_id = ANY ($1::uuid[])"+sql, ids)
			if err != nil {
				return 0, err
			}
			n += len(ids) - int(found)
		}
		return n, nil
	}
	if lost, err = missing(""); err != nil || lost > 0 {
		return lost, err
	}
	err = lab.WithWorker(sys, func(*lab.Program) error { return drained(ctx, d) })
	if err != nil && !errors.Is(err, lab.ErrUnfinished) {
		return 0, err
	}
	return missing(" AND state = 'SUCCEEDED'")
}
