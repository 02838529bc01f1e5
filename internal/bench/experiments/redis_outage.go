package experiments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
)

const (
	outageRateTarget = 0.5 // times healthy
	slow99Target     = 1.3
	stopped99Target  = 2.0

	// A slow Redis answers nothing for pauseLength, then everything for a short moment.
	pauseLength   = 200 * time.Millisecond
	pauseInterval = 220 * time.Millisecond
)

// redisState is one state of Redis, and what clients saw in it.
type redisState struct {
	name    string
	trouble func(context.Context, *lab.Lab) (end func() error, err error) // nil: none
	load    []loadgen.Load
}

func loadP99(l loadgen.Load) float64 { return loadgen.Milliseconds(l.Quantile(99)) }

// RedisOutage submits as fast as is accepted while Redis is well, slow and stopped,
// in turns on one system, and then has a worker finish all of it.
func RedisOutage(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	states := []redisState{{name: "well"}, {name: "slow", trouble: slowRedis}, {name: "stopped", trouble: stopRedis}}
	accepted, lost := 0, 0
	began := time.Now()
	err := l.Phase(ctx, l.Options, l.StartService, func(d *lab.Database, sys lab.System) error {
		err := lab.InTurns(l.Options.Rounds, len(states), func(_, side int) error {
			got, err := states[side].submit(ctx, l, sys)
			accepted += got.Accepted
			return err
		})
		if err != nil {
			return err
		}
		rows, err := d.Number(ctx, "SELECT count(*) FROM jobs")
		if err != nil {
			return err
		}
		l.Printf("%d accepted, %.0f rows; finishing all of them", accepted, rows)
		lost = accepted - int(rows)
		return lab.WithWorker(sys, func(*lab.Program) error {
			return d.AllFinished(ctx, began, accepted, 5*time.Minute)
		})
	})
	if errors.Is(err, lab.ErrUnfinished) {
		l.Printf("%v", err)
		lost, err = max(lost, 1), nil
	}
	if err != nil {
		return nil, err
	}
	var list []figures.Figure
	for i, name := range []string{"slow (200 ms)", "stopped"} {
		rate, rateNote := figures.Compare(states[i+1].load, states[0].load, loadgen.Load.Rate, "%.0f/s")
		p99, p99Note := figures.Compare(states[i+1].load, states[0].load, loadP99, "%.1f ms")
		list = append(list,
			figures.AtLeast("accepted/s while Redis is "+name, outageRateTarget, rate, "x healthy", rateNote),
			figures.AtMost("submit p99 while Redis is "+name, []float64{slow99Target, stopped99Target}[i], p99, "x healthy", p99Note))
	}
	return append(list, figures.AtMost("accepted jobs lost, Redis slow and stopped", 0, float64(lost), "jobs",
		fmt.Sprintf("of %d, all finished by a worker afterwards", accepted))), nil
}

// submit measures one phase. The trouble begins before it and is ended after it.
func (s *redisState) submit(ctx context.Context, l *lab.Lab, sys lab.System) (got loadgen.Load, err error) {
	if s.trouble != nil {
		end, failure := s.trouble(ctx, l)
		if failure != nil {
			return got, failure
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	before := l.Usage(sys)
	got, err = loadgen.Closed{Clients: l.Options.Clients, During: l.Options.Duration / 2}.Submit(ctx, sys.Target)
	s.load = append(s.load, got)
	l.Printf("Redis is %s: accepted %.0f/s (p50 %v, p99 %v, at most %v); %v", s.name, got.Rate(), loadgen.Round(got.Quantile(50)),
		loadgen.Round(got.Quantile(99)), loadgen.Round(got.Quantile(100)), l.Usage(sys).Since(before))
	return got, err
}

// slowRedis has Redis stop again and again for a moment.
func slowRedis(ctx context.Context, l *lab.Lab) (end func() error, err error) {
	client, err := l.Redis()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		for ctx.Err() == nil {
			if err := client.ClientPause(ctx, pauseLength).Err(); err != nil && ctx.Err() == nil {
				return err
			}
			lab.Pause(ctx, pauseInterval)
		}
		return nil
	})
	return func() error {
		cancel()
		return errors.Join(group.Wait(), client.ClientUnpause(context.Background()).Err(), client.Close())
	}, nil
}

// stopRedis stops the process.
func stopRedis(_ context.Context, l *lab.Lab) (end func() error, err error) {
	return l.Servers.Redis.Resume, l.Servers.Redis.Pause()
}
