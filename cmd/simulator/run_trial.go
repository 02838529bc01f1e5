package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	forgerun "github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/load"
	webhooks "github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/stack"
)

// trial is one playing of a scenario.
type trial struct {
	flags    runFlags
	scenario *scenario.Scenario
	command  string
	stdout   io.Writer
	stderr   io.Writer

	id       string // marks the run's jobs
	out      string // folder of the report
	url      string // of the service
	text     string // of the scenario
	began    time.Time
	stack    *stack.Stack // nil against a service that is not ours, without workers of ours
	dir      string       // of the stack; "" for none
	receiver *webhooks.Receiver
	facts    *history.Writer
	recorder *report.Recorder
	engine   *load.Engine
	chaos    stack.Chaos
	workers  stack.Schedule

	mu       sync.Mutex
	notes    []string // worth telling in the report
	harmed   bool     // by faults
	drained  bool     // all jobs ended before the streams were closed
	unhealed error    // the service did not come back after the faults
	shrunk   bool     // a worker was stopped, and with it what it had counted is gone
}

// run plays the scenario and gives the exit code. However it ends, what it
// started is stopped.
func (t *trial) run(ctx context.Context) int {
	account, err := t.playAndJudge(ctx)
	closing := t.close()
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(t.stderr, "simulator: interrupted, nothing was judged")
		t.clear()
		return exitInterrupted
	case err != nil:
		return t.unusable(err)
	}
	if err := t.tell(account); err != nil {
		return t.unusable(err)
	}
	_ = os.RemoveAll(t.dir)
	code := exitOK
	if account.Outcome() != report.Passed {
		code = exitDifferent
	}
	if closing != nil {
		fmt.Fprintf(t.stderr, "simulator: the service did not end as it should: %v\n", closing)
		code = exitDifferent
	}
	return code
}

// unusable says why nothing could be judged, and where the service's logs are if
// there is one of ours.
func (t *trial) unusable(err error) int {
	code := unusable(t.stderr, err)
	if t.dir != "" && t.keepLogs() == nil {
		fmt.Fprintf(t.stderr, "The logs are in %s\n", filepath.Join(t.out, "logs"))
	}
	t.clear()
	return code
}

// clear removes what a run leaves that was not judged, and the report's folder
// if there is nothing in it.
func (t *trial) clear() {
	_ = os.RemoveAll(t.dir)
	if t.facts != nil { // it is this run's
		_ = os.RemoveAll(filepath.Join(t.out, historyFolder))
	}
	_ = os.Remove(t.out) // fails unless it is empty
}

func (t *trial) playAndJudge(ctx context.Context) (report.Run, error) {
	t.id = "sim" + rand.Text()[:10]
	t.began = time.Now()
	if t.out = t.flags.out; t.out == "" {
		t.out = outFolder(t.scenario.Name, t.began)
	}
	if err := t.prepare(ctx); err != nil {
		return report.Run{}, err
	}
	live := report.StartLive(t.stderr, t.recorder, report.LiveOptions{
		Scenario: t.scenario.Name, Duration: t.scenario.Duration, Jobs: t.scenario.Jobs,
	})
	defer live.Stop()
	if err := t.drive(ctx); err != nil {
		return report.Run{}, err
	}
	numbers := t.recorder.Run() // what comes now is not load
	verdict, err := t.judge(ctx)
	if err != nil {
		return report.Run{}, err
	}
	return t.account(numbers, verdict), nil
}

// patience bounds how long our own processes may take to get ready.
const patience = 90 * time.Second

// prepare makes everything ready: the service, the folder, the tenants.
func (t *trial) prepare(ctx context.Context) error {
	var err error
	if t.chaos, err = stack.ParseChaos(t.scenario.Chaos); err != nil {
		return err
	}
	if t.workers, err = stack.ParseWorkers(t.scenario.Service.Workers); err != nil {
		return err
	}
	if t.url, err = t.service(ctx); err != nil {
		return err
	}
	if err := collect.CheckStores(ctx, t.flags.databaseURL, t.flags.redisURL); err != nil {
		return err
	}
	if err := os.MkdirAll(t.out, 0o755); err != nil {
		return err
	}
	if t.facts, err = history.Create(filepath.Join(t.out, historyFolder)); err != nil {
		return fmt.Errorf("%w (choose another --out)", err)
	}
	t.recorder = report.NewRecorder(time.Now())
	if t.flags.url != "" {
		t.note("the service was running already: of the scenario's service, only what --workers starts applies")
	}
	if err := t.listen(); err != nil {
		return err
	}
	t.engine, err = load.New(load.Options{
		URL: t.url, Key: t.flags.key, Run: t.id, Scenario: t.scenario,
		History: t.facts, Recorder: t.recorder, Receiver: t.receiver, Pending: t.pending(),
	})
	if err != nil {
		return err
	}
	return t.engine.Prepare(ctx)
}

// service gives the address of the service, which it starts unless it was given
// one.
func (t *trial) service(ctx context.Context) (string, error) {
	own := t.flags.url == ""
	if !own {
		c, err := newClient(t.flags.url, t.flags.key, newTransport())
		if err != nil {
			return "", err
		}
		if err := c.connect(ctx); err != nil || t.flags.workers == "" {
			return t.flags.url, err
		}
	}
	binary, err := findBinary(t.flags.binary)
	if err != nil {
		return "", err
	}
	if t.dir, err = devstack.MkdirTemp("forgerun-simulator-"); err != nil {
		return "", err
	}
	fmt.Fprintf(t.stderr, "Starting %s\n", map[bool]string{true: "a service of our own", false: "workers"}[own])
	scale := 1.0
	if s := t.scenario.Service.TimeScale; s != nil {
		scale = *s
	}
	o := stack.Options{
		Forgerun: binary, Dir: t.dir, Concurrency: t.scenario.Service.Concurrency, TimeScale: scale,
		Env: t.scenario.Service.Env, Lease: t.flags.lease, Faults: t.scenario.Chaos != "",
		DatabaseURL: t.flags.databaseURL, RedisURL: t.flags.redisURL,
	}
	if t.stack, err = stack.Start(ctx, o); err != nil {
		return "", err
	}
	starting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the workers were not ready within %s", patience))
	defer cancel()
	if err := t.stack.Scale(starting, t.workers.At(0)); err != nil {
		return "", err
	}
	if !own {
		return t.flags.url, nil
	}
	t.flags.databaseURL, t.flags.redisURL, t.flags.scale = t.stack.DatabaseURL(), t.stack.RedisURL(), &scale
	return t.stack.URL(), nil
}

// listen starts the webhook receiver if the scenario has one.
func (t *trial) listen() error {
	if len(t.scenario.Receivers) == 0 {
		return nil
	}
	names := map[string][]webhooks.Answer{}
	for _, x := range t.scenario.Receivers {
		for _, a := range x.Answers {
			names[x.Name] = append(names[x.Name], webhooks.Answer{
				Status: a.Status, After: a.After, Hang: a.Hang, Reset: a.Reset, Share: float64(a.Share),
			})
		}
	}
	c, err := forgerun.New(forgerun.Config{URL: t.url})
	if err != nil {
		return err
	}
	t.receiver, err = webhooks.Listen(t.flags.receiverAddr, t.flags.receiverURL, webhooks.Options{
		Seed: t.scenario.Seed, Names: names, History: t.facts, Delivered: t.recorder.Delivered,
		Keys: c.Directory().Key, Owner: t.owner,
	})
	if err != nil {
		return fmt.Errorf("%w (choose another --receiver-addr)", err)
	}
	if t.flags.receiverURL != "" {
		return nil // all are behind one address
	}
	for name := range names {
		if err := t.open(name); err != nil {
			return err
		}
	}
	return nil
}

// open gives a receiver a port of its own, behind a proxy if there are faults.
func (t *trial) open(name string) error {
	address, err := t.receiver.Open(name)
	if err != nil || t.stack == nil {
		return err
	}
	proxied, err := t.stack.ReceiverURL(address)
	if err != nil {
		return err
	}
	return t.receiver.SetURL(name, proxied)
}

// owner tells the receiver whose job a delivery is about.
func (t *trial) owner(jobID string) (tenant int, known bool) {
	if t.engine == nil {
		return 0, false
	}
	return t.engine.Owner(jobID)
}

// pending counts the unsettled deliveries where the rows can be read.
func (t *trial) pending() func(context.Context) (int64, error) {
	if t.flags.databaseURL == "" {
		return nil
	}
	return func(ctx context.Context) (int64, error) {
		var clients []string
		for _, a := range t.engine.Accounts() {
			if a.ClientID != "" {
				clients = append(clients, a.ClientID)
			}
		}
		return collect.PendingDeliveries(ctx, t.flags.databaseURL, clients, t.began)
	}
}

func (t *trial) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(t.notes) < 100 {
		t.notes = append(t.notes, text)
	}
}

// close stops what was started. It may be called in any state.
func (t *trial) close() error {
	if t.engine != nil {
		t.engine.Close()
	}
	if t.receiver != nil {
		t.receiver.Close()
	}
	var errs []error
	if t.facts != nil {
		errs = append(errs, t.facts.Close())
	}
	if t.stack != nil {
		errs = append(errs, t.stack.Close())
	}
	return errors.Join(errs...)
}
