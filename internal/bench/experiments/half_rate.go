package experiments

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

const (
	halfRateTarget = 10.0 // ms
	// openConnections is how many requests of an open loop can be in flight: far more
	// than there ever are unless the service falls behind.
	openConnections = 256
)

// HalfRate submits at half of the maximum rate, in an open loop with the workers
// stopped, as for the maximum.
func HalfRate(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	if err := findMaximum(ctx, l); err != nil {
		return nil, err
	}
	rate := l.MaxAccepted / 2
	var p50, p99 []float64 // from when a request is due
	err := l.Phase(ctx, l.Options, l.StartService, func(_ *lab.Database, sys lab.System) error {
		loop := loadgen.OpenLoop{Rate: rate, During: time.Second, Connections: openConnections}
		_, _ = loop.Submit(ctx, sys.Target) // the warm-up
		loop.During = l.Options.Duration / 2
		for range max(3, l.Options.Rounds) {
			before := l.Usage(sys)
			got, err := loop.Submit(ctx, sys.Target)
			l.Printf("%.0f/s: %v; %v", rate, &got, l.Usage(sys).Since(before))
			if err != nil {
				return err
			}
			p50 = append(p50, loadgen.Milliseconds(got.FromDue.Quantile(50, http.StatusAccepted)))
			p99 = append(p99, loadgen.Milliseconds(got.FromDue.Quantile(99, http.StatusAccepted)))
		}
		return nil
	})
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return []figures.Figure{figures.AtMost("submit p99 at half of the maximum rate, open loop", halfRateTarget, figures.Median(p99), "ms",
		fmt.Sprintf("at %.0f/s; p50 %.2f ms", rate, figures.Median(p50)))}, nil
}

// findMaximum measures the maximum rates briefly unless an experiment before has
// done so.
func findMaximum(ctx context.Context, l *lab.Lab) error {
	if l.MaxAccepted > 0 {
		return nil
	}
	o := l.Options
	o.Duration = min(o.Duration, 4*time.Second)
	m, err := measure(ctx, l, o, l.StartService)
	if err != nil {
		return err
	}
	l.Printf("maximum rates: %s", m)
	l.MaxAccepted = m.accepted.Rate()
	return nil
}
