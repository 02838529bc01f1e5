package trial

import (
	"context"
	"fmt"
	"os"

	forgerun "github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/load"
	webhooks "github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/stack"
)

// service returns the address of the service. It starts one unless an address was given.
func (t *Trial) service(ctx context.Context) (address string, err error) {
	own := t.o.URL == ""
	if !own {
		if t.o.URL, err = load.Connect(ctx, t.o.URL, t.o.Key); err != nil || !t.o.StartWorkers {
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
	fmt.Fprintf(t.o.Stderr, "Starting %s\n", map[bool]string{true: "a service of our own", false: "workers"}[own])
	scale := 1.0
	if s := t.o.Scenario.Service.TimeScale; s != nil {
		scale = *s
	}
	o := stack.Options{
		Forgerun: binary, Dir: t.dir, Concurrency: t.o.Scenario.Service.Concurrency, TimeScale: scale,
		Env: t.o.Scenario.Service.Env, Lease: t.o.Lease, Faults: t.o.Scenario.Chaos != "", Clock: t.chaos.MovesClock(),
		DatabaseURL: t.o.DatabaseURL, RedisURL: t.o.RedisURL, Workers: t.workers.At(0),
	}
	starting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not everything was ready within %s", patience))
	defer cancel()
	if t.stack, err = stack.Start(starting, o); err != nil {
		return "", err
	}
	if !own {
		return t.o.URL, nil
	}
	t.o.DatabaseURL, t.o.RedisURL, t.o.TimeScale = t.stack.DatabaseURL(), t.stack.RedisURL(), &scale
	return t.stack.URL(), nil
}

// listen starts the webhook receiver if the scenario has one.
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
		o.Proxy = t.stack.ReceiverURL // if there are faults
	}
	t.receiver, err = webhooks.Listen(t.o.ReceiverAddr, t.o.ReceiverURL, o)
	return err
}
