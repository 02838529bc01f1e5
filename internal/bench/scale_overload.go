package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Targets of overload.
const (
	overload         = 2.0   // times the peak
	goodputTarget    = 0.9   // of the peak
	refusalTarget    = 100.0 // ms
	overloadTime     = 15 * time.Second
	overloadPatience = time.Second // of the generator, when all its connections wait
)

// scaleOverload offers twice of what can be accepted, and looks what becomes of
// it. The peak is that of as many clients as elsewhere, by the same library from
// this process; the flood needs more of the same two cores than these do.
func scaleOverload(ctx context.Context, l *lab) (figures []figure, err error) {
	err = l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) error {
		if _, err := l.accept(ctx, sys); err != nil { // the warm-up
			return err
		}
		before, err := l.accept(ctx, sys)
		if err != nil {
			return err
		}
		p := pacing{rate: overload * before, during: overloadTime, connections: floodConnections(before), patience: overloadPatience}
		f, flooded := flood(ctx, sys, p)
		l.say("%.0f/s offered over %d connections: %v", p.rate, p.connections, &flooded)
		after, err := l.accept(ctx, sys)
		if err != nil {
			return err
		}
		l.say("peak %.0f/s before and %.0f/s after", before, after)
		lost, err := l.lost(ctx, d, sys, f.ids)
		if err != nil {
			return err
		}
		figures = overloadFigures(flooded, (before+after)/2, lost)
		return ctx.Err()
	})
	return figures, err
}

// floodConnections are as many as requests that are accepted within half a second:
// few clients would hold back by themselves what is to be refused.
func floodConnections(peak float64) int { return min(max(1024, int(peak/2)), 8192) }

func overloadFigures(p paced, peak float64, lost int) []figure {
	good := p.answers(http.StatusAccepted)
	quick, acceptedP99 := newHistogram(), 0.0
	if h := p.fromSent[http.StatusAccepted]; h != nil {
		acceptedP99 = milliseconds(quantile(h, 99))
	}
	refused := p.answers(http.StatusTooManyRequests, http.StatusServiceUnavailable)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		if h := p.fromSent[status]; h != nil {
			quick.Merge(h)
		}
	}
	other := p.offered - p.unsent - good - refused
	goodput := float64(good) / p.took.Seconds()
	return []figure{
		atLeast("overload, twice the peak offered: goodput", goodputTarget, goodput/peak, "x peak",
			fmt.Sprintf("%.0f/s to %.0f/s; %d offered, %d not sent for lack of a connection", goodput, peak, p.offered, p.unsent)),
		atMost("overload: p99 of refusals", refusalTarget, milliseconds(quantile(quick, 99)), "ms", fmt.Sprintf("%d refused; p99 of accepted %.0f ms", refused, acceptedP99)),
		atMost("overload: answers other than 202, 429 and 503", 0, float64(other), "answers", ""),
		atMost("overload: accepted jobs lost", 0, float64(lost), "jobs", fmt.Sprintf("of %d, all finished by a worker afterwards", good)),
	}
}

// flooding keeps what was accepted.
type flooding struct {
	mu  sync.Mutex
	ids []uuid.UUID
}

// flood offers submissions over many connections.
func flood(ctx context.Context, sys system, p pacing) (*flooding, paced) {
	f := &flooding{}
	client := newClient(p.connections)
	defer client.CloseIdleConnections()
	return f, pace(ctx, p, func() func() int {
		s := newSubmission(client, sys)
		return func() int {
			if err := client.Do(s.request, s.response); err != nil {
				return 0
			}
			if s.response.StatusCode() == http.StatusAccepted {
				f.note(s.response.Body())
			}
			return s.response.StatusCode()
		}
	})
}

// note keeps the id in a receipt; one without an id is kept as a job that does not
// exist.
func (f *flooding) note(receipt []byte) {
	var r struct {
		ID uuid.UUID `json:"job_id"`
	}
	_ = json.Unmarshal(receipt, &r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ids = append(f.ids, r.ID)
}

// lost counts accepted jobs that do not exist, or do not finish when a worker
// runs.
func (l *lab) lost(ctx context.Context, d *database, sys system, accepted []uuid.UUID) (lost int, err error) {
	missing := func(sql string) (n int, err error) {
		for ids := range slices.Chunk(accepted, 10_000) {
			found, err := d.number(ctx, "SELECT count(*) FROM jobs WHERE job_id = ANY ($1::uuid[])"+sql, ids)
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
	err = withWorker(sys, func(*program) error { return drained(ctx, d) })
	if err != nil && !errors.Is(err, errUnfinished) {
		return 0, err
	}
	return missing(" AND state = 'SUCCEEDED'")
}
