package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const halfTarget = 10.0 // ms

// openConnections is how many requests of an open loop can be in the air: far
// more than there ever are unless the service falls behind.
const openConnections = 256

// halfRate submits at half of the maximum rate, in an open loop with the workers
// stopped, as for the maximum.
func halfRate(ctx context.Context, l *lab) ([]figure, error) {
	if err := l.capacity(ctx); err != nil {
		return nil, err
	}
	rate := l.maxAccepted / 2
	var p50, p99 []float64 // from when a request is due
	err := l.phase(ctx, l.o, l.startForgeRun, func(_ *database, sys system) error {
		openLoop(ctx, sys, rate, time.Second, openConnections) // the warm-up
		for range max(3, l.o.rounds) {
			before := l.usage(sys)
			o := openLoop(ctx, sys, rate, l.o.duration/2, openConnections)
			l.say("%.0f/s: %v; %v", rate, &o.paced, l.usage(sys).since(before))
			if refused := o.sent - o.statuses[http.StatusAccepted]; refused > 0 {
				return fmt.Errorf("%d of %d requests were not accepted: %v", refused, o.sent, o.statuses)
			}
			p50 = append(p50, milliseconds(o.quantile(http.StatusAccepted, 50)))
			p99 = append(p99, milliseconds(o.quantile(http.StatusAccepted, 99)))
		}
		return nil
	})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return []figure{atMost("submit p99 at half of the maximum rate, open loop", halfTarget, median(p99), "ms",
		fmt.Sprintf("at %.0f/s; p50 %.2f ms", rate, median(p50)))}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
