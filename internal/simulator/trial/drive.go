package trial

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	forgerun "github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/load"
	webhooks "github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/stack"
)

// Drive sends the load and waits until all jobs and deliveries have ended. Meanwhile it changes the number of workers and injects faults.
func (t *Trial) Drive(ctx context.Context) error {
	began := time.Now()
	t.recorder.Stage("load", func() float64 { return t.progress(began) })
	defer t.closeClients()
	disturbing, calm := context.WithCancel(ctx)
	defer calm()
	var beside sync.WaitGroup
	if t.stack != nil {
		// If the run is interrupted, the service is stopped at once, even during a fault.
		defer context.AfterFunc(ctx, func() { _ = t.stack.Close() })()
		beside.Go(func() { t.scale(disturbing) })
		beside.Go(func() { t.injectFaults(disturbing) })
		beside.Go(func() { t.restart(disturbing, began) })
	}
	err := t.engine.Run(ctx)
	calm()
	beside.Wait()
	if err != nil {
		return err
	}
	if late := t.engine.Late(); late > time.Second {
		t.note("the last requests were sent %s late, because too many others had no response yet; "+
			"the latencies include this delay", late.Round(time.Millisecond))
	}
	if t.stack != nil {
		if done := t.stack.Scaling(); done.Stopped > 0 {
			t.note("scaling stopped %d worker processes; the slowest ended %s after SIGTERM", done.Stopped, done.Slowest.Round(time.Millisecond))
		}
		t.recorder.Stage("heal", func() float64 { return float64(len(t.stack.MetricsURLs())) / float64(t.stack.Processes()) })
		healing, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		t.unhealed = t.stack.Heal(healing) // if processes do not recover, the run still continues and is judged
	}
	open := max(t.engine.Waiting(), 1)
	t.recorder.Stage("drain", func() float64 { return 1 - float64(t.engine.Waiting())/float64(open) })
	unfinished, which, pending := t.engine.Drain(ctx)
	t.drained = unfinished == 0
	if unfinished > 0 {
		t.note("%s after the last submission, %d jobs had not ended: %s", t.o.Scenario.Drain, unfinished, strings.Join(which, "; ")+
			map[bool]string{true: "; and more"}[unfinished > len(which)])
	}
	if pending > 0 {
		t.note("%s after the last submission, %d deliveries were pending", t.o.Scenario.Drain, pending)
	}
	return context.Cause(ctx)
}

const scaleStep = 500 * time.Millisecond

func (t *Trial) scale(ctx context.Context) {
	began := time.Now()
	t.recorder.Workers(t.stack.Workers())
	for {
		if n := t.workers.At(t.progress(began)); n != t.stack.Workers() {
			if n < t.stack.Workers() {
				t.disturbed.Store(true)
			}
			if err := t.stack.Scale(ctx, n); err != nil && ctx.Err() == nil {
				t.note("could not scale to %d workers: %v", n, err)
			}
			t.recorder.Workers(t.stack.Workers())
		}
		if load.Sleep(ctx, scaleStep) != nil {
			return
		}
	}
}

func (t *Trial) progress(began time.Time) float64 {
	share := 0.0
	if d := t.o.Scenario.Duration; d > 0 {
		share = float64(time.Since(began)) / float64(d)
	}
	if n := t.o.Scenario.Jobs; n > 0 {
		share = max(share, float64(t.engine.Tickets())/float64(n))
	}
	return min(share, 1)
}

func (t *Trial) restart(ctx context.Context, began time.Time) {
	down := t.o.Scenario.Service.Down
	if down.Max == 0 || load.Sleep(ctx, time.Until(began.Add(down.Min))) != nil {
		return
	}
	t.disturbed.Store(true)
	var err error
	if t.outage.down, t.outage.restarted, err = t.stack.Restart(ctx, began.Add(down.Max)); err != nil && ctx.Err() == nil {
		t.note("could not restart the service: %v", err)
	}
	t.outage.ready = time.Now()
	t.recorder.Fault("restart", "all processes", t.outage.down, t.outage.ready, 1)
}

func (t *Trial) injectFaults(ctx context.Context) {
	err := t.chaos.Run(ctx, t.stack, t.o.Scenario.Seed, func(f stack.Fault) {
		t.disturbed.Store(true)
		if f.Err != nil { // a fault with an error is not counted, because it may have had no effect
			t.note("could not inject or end the fault %s on %s: %v", f.Kind, f.Target, f.Err)
			return
		}
		t.recorder.Fault(f.Kind, f.Target, f.At, f.Until, f.Count)
	})
	if err != nil && ctx.Err() == nil {
		t.note("fault injection ended early: %v", err)
	}
}

// service returns the address of the service. If Options.URL is empty, it starts a service. If Options.StartWorkers is set, it starts
// workers for the service at Options.URL.
func (t *Trial) service(ctx context.Context) (address string, err error) {
	own := t.o.URL == ""
	if !own {
		if err := load.Connect(ctx, t.o.URL, t.o.Key); err != nil || !t.o.StartWorkers {
			return t.o.URL, err
		}
	}
	binary, err := stack.FindForgerun(t.o.Binary)
	if err != nil {
		return "", err
	}
	if t.dir, err = os.MkdirTemp("", "forgerun-simulator-"); err != nil {
		return "", err
	}
	fmt.Fprintf(t.o.Stderr, "Starting %s\n", map[bool]string{true: "a service for this run", false: "workers"}[own])
	scale := 1.0
	if s := t.o.Scenario.Service.TimeScale; s != nil {
		scale = *s
	}
	o := stack.Options{
		Forgerun: binary, Dir: t.dir, Concurrency: t.o.Scenario.Service.Concurrency, TimeScale: scale,
		Env: t.o.Scenario.Service.Env, Lease: t.o.Lease, Faults: t.o.Scenario.Chaos != "", Clock: t.chaos.MovesClock(),
		DatabaseURL: t.o.DatabaseURL, RedisURL: t.o.RedisURL, Workers: t.workers.At(0),
	}
	starting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the service and its workers were not ready within %s", patience))
	defer cancel()
	if t.stack, err = stack.Start(starting, o); err != nil {
		return "", err
	}
	if !own {
		return t.o.URL, nil
	}
	t.o.DatabaseURL, t.o.RedisURL, t.o.TimeScale = t.stack.DatabaseURL, t.stack.RedisURL, &scale
	return t.stack.URL, nil
}

func (t *Trial) listen() error {
	if len(t.o.Scenario.Receivers) == 0 {
		return nil
	}
	names := map[string][]scenario.Answer{}
	for _, x := range t.o.Scenario.Receivers {
		names[x.Name] = x.Answers
	}
	c, err := forgerun.New(forgerun.Config{URL: t.url})
	if err != nil {
		return err
	}
	o := webhooks.Options{
		Seed: t.o.Scenario.Seed, Names: names, History: t.facts, Delivered: t.recorder.Delivered,
		Keys: c.Directory().Key,
	}
	if t.stack != nil && t.o.ReceiverURL == "" {
		o.Proxy = t.stack.ReceiverURL // if faults are injected, the service reaches the receiver through a proxy
	}
	t.receiver, err = webhooks.Listen(t.o.ReceiverAddr, t.o.ReceiverURL, o)
	return err
}
