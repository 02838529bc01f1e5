package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// unharmedTarget: while Redis answers slowly or not at all, rates are at least
// 1/unharmedTarget of the healthy ones, and latencies at most unharmedTarget times.
const unharmedTarget = 2.0

// Redis answers nothing for pauseLength, then everything for a short moment.
const (
	pauseLength   = 200 * time.Millisecond
	pauseInterval = 220 * time.Millisecond
)

// submitting is what clients saw in one state of Redis.
type submitting struct {
	rate, p99 float64 // per second, milliseconds
}

func submitRate(s submitting) float64 { return s.rate }
func submitP99(s submitting) float64  { return s.p99 }

// redisTrouble submits as fast as is accepted while Redis is well, slow and
// stopped, in turns on one system, and then has a worker finish all of it.
func redisTrouble(ctx context.Context, l *lab) ([]figure, error) {
	var healthy, slow, stopped []submitting
	accepted, lost := 0, 0
	began := time.Now()
	err := l.phase(ctx, l.o, l.startForgeRun, func(d *database, sys system) error {
		turns := []func() error{
			func() error { return l.submitWhile(ctx, sys, "well", &healthy, &accepted, nil) },
			func() error { return l.submitWhile(ctx, sys, "slow", &slow, &accepted, l.slowRedis) },
			func() error { return l.submitWhile(ctx, sys, "stopped", &stopped, &accepted, l.stopRedis) },
		}
		for round := range l.o.rounds {
			for turn := range turns {
				if round%2 == 1 {
					turn = len(turns) - 1 - turn
				}
				if err := turns[turn](); err != nil {
					return err
				}
			}
		}
		var rows int
		if err := d.conn.QueryRow(ctx, "SELECT count(*) FROM jobs").Scan(&rows); err != nil {
			return err
		}
		l.say("%d accepted, %d rows; finishing all of them", accepted, rows)
		lost = accepted - rows
		return withWorker(sys, func(*program) error {
			return allFinished(ctx, d, began, accepted, 5*time.Minute)
		})
	})
	if errors.Is(err, errUnfinished) {
		l.say("%v", err)
		lost, err = max(lost, 1), nil
	}
	if err != nil {
		return nil, err
	}
	return append(append(troubleFigures("slow (200 ms)", healthy, slow), troubleFigures("stopped", healthy, stopped)...),
		atMost("accepted jobs lost, Redis slow and stopped", 0, float64(lost), "jobs", fmt.Sprintf("of %d, all finished by a worker afterwards", accepted))), nil
}

func troubleFigures(name string, healthy, trouble []submitting) []figure {
	return []figure{
		atLeast("accepted/s while Redis is "+name, 1/unharmedTarget, median(ratios(column(trouble, submitRate), column(healthy, submitRate))), "x healthy",
			fmt.Sprintf("%.0f/s to %.0f/s", median(column(trouble, submitRate)), median(column(healthy, submitRate)))),
		atMost("submit p99 while Redis is "+name, unharmedTarget, median(ratios(column(trouble, submitP99), column(healthy, submitP99))), "x healthy",
			fmt.Sprintf("%.1f ms to %.1f ms", median(column(trouble, submitP99)), median(column(healthy, submitP99)))),
	}
}

// submitWhile measures one phase. trouble, if any, begins before it and is ended
// after it.
func (l *lab) submitWhile(ctx context.Context, sys system, name string, results *[]submitting, accepted *int, trouble func(context.Context) (end func() error, err error)) (err error) {
	if trouble != nil {
		end, failure := trouble(ctx)
		if failure != nil {
			return failure
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	before := l.usage(sys)
	got, err := generate(ctx, sys, l.o.clients, l.o.duration/2, nil)
	*accepted += got.accepted
	*results = append(*results, submitting{rate: got.rate(), p99: milliseconds(got.quantile(99))})
	l.say("Redis is %s: accepted %.0f/s (p50 %v, p99 %v, at most %v); %v", name, got.rate(), round(got.quantile(50)), round(got.quantile(99)),
		round(got.quantile(100)), l.usage(sys).since(before))
	return err
}

// slowRedis has Redis stop again and again for a moment.
func (l *lab) slowRedis(ctx context.Context) (end func() error, err error) {
	client, err := redisClient(l.servers.Redis.URL())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := client.ClientPause(ctx, pauseLength).Err(); err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			pause(ctx, pauseInterval)
		}
		done <- nil
	}()
	return func() error {
		cancel()
		return errors.Join(<-done, client.ClientUnpause(context.Background()).Err(), client.Close())
	}, nil
}

// stopRedis stops the process.
func (l *lab) stopRedis(context.Context) (end func() error, err error) {
	return l.servers.Redis.Resume, l.servers.Redis.Pause()
}
