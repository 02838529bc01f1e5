// Package tour plays its scenario, one job of each work kind, against a service and
// says for each kind what was expected and what came: by what the client saw and
// what the judge says of it. Flags and exit codes are the caller's.
package tour

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

//go:embed tour.yaml
var text []byte

// DefaultPatience is how long the end of a delivery is waited for.
const DefaultPatience = time.Minute

// How the tour deals with time. Leads are counted on this machine's clock.
const (
	outageLead   = 8 * time.Second // how far ahead the job is put that the service is stopped for
	stays        = time.Second     // how long something must stay as it is
	punctual     = 2 * time.Second // how late a job may be queued after its time
	recovery     = 5 * time.Second // how late after the service is back
	overdue      = 10 * time.Second
	cancelTries  = 5 // how often a lost race against a quick job is run again
	leaveLimit   = 5 * time.Second
	collectLimit = time.Minute
)

// Outage takes the service down and brings it back when the given moment has
// passed.
type Outage func(ctx context.Context, until time.Time) (OutageTimes, error)

// OutageTimes are the moments of an outage: fully stopped, about to be started, and
// ready again.
type OutageTimes struct{ Down, Restarted, Ready time.Time }

// Options say what is toured and how.
type Options struct {
	URL, Key  string            // without a key a client is registered
	Transport http.RoundTripper // nil: the default one
	Kinds     []string          // nil: all

	TimeScale     *float64 // the service's; nil: not known
	DeliveryTries int      // that the service makes; 0: not known
	Timeout       time.Duration
	Patience      time.Duration // with the end of each delivery
	Outage        Outage        // nil: the service is not ours to stop

	// Listen starts the receiver of webhooks.
	Listen   func(receiver.Options) (*receiver.Receiver, error)
	Progress io.Writer
}

// errTimeUp ends the tour at its timeout.
var errTimeUp = errors.New("the tour's time is up")

// tour is one Run under way.
type tour struct {
	o         Options
	run       string // marks its jobs
	began     time.Time
	scenario  *scenario.Scenario
	transport *monitored
	facts     *ledger
	receiver  *receiver.Receiver
	engine    *load.Engine
	account   collect.Account
	tickets   atomic.Int64 // given out
	progress  *progress
}

// Run tours the service. An error means that nothing was judged, or that the
// context ended.
func Run(ctx context.Context, o Options) (*Result, error) {
	t := &tour{o: o, run: "tour" + rand.Text()[:10], began: time.Now(), facts: newLedger()}
	address, err := load.ServiceURL(o.URL)
	if err != nil {
		return nil, err
	}
	if t.scenario, err = scenario.Parse("tour.yaml", text); err != nil {
		return nil, err
	}
	t.scenario.Drain = o.Timeout
	if t.o.Transport == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		defer transport.CloseIdleConnections()
		t.o.Transport = transport
	}
	if err := t.listen(address); err != nil {
		return nil, err
	}
	defer t.receiver.Close()
	if t.o.Key, err = load.Connect(ctx, address, o.Key, t.o.Transport); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimeUp)
	defer cancel()
	touring, abort := context.WithCancelCause(limited)
	defer abort(nil)
	t.transport = &monitored{RoundTripper: t.o.Transport, abort: abort}
	if err := t.prepare(touring, address); err != nil {
		return nil, err
	}
	r := &Result{Address: address, Rows: t.playAll(touring)}
	r.Took = time.Since(t.began)
	return r, context.Cause(ctx)
}

// listen starts the receiver, which answers the tries of a kind's own job as the
// scenario says, and those of other jobs, which a webhook gets too, at once.
func (t *tour) listen(address string) error {
	names := map[string][]receiver.Answer{}
	for _, r := range t.scenario.Receivers {
		for _, a := range r.Answers {
			answer := receiver.Answer{Status: a.Status, After: a.After, Hang: a.Hang, Reset: a.Reset}
			names[r.Name] = append(names[r.Name], answer)
		}
	}
	c, err := client.New(client.Config{URL: address, HTTP: &http.Client{Transport: t.o.Transport}})
	if err != nil {
		return err
	}
	t.receiver, err = t.o.Listen(receiver.Options{
		Names: names, History: t.facts, Keys: c.Directory().Key,
		Choose: func(name string, ticket int64, try int) receiver.Answer {
			if name != callbackName && receiverName(t.facts.kindOf(ticket)) != name {
				return receiver.Answer{}
			}
			return names[name][min(try, len(names[name]))-1]
		},
	})
	return err
}

func (t *tour) prepare(ctx context.Context, address string) error {
	poll, watch := 500*time.Millisecond, 50*time.Millisecond
	if t.o.TimeScale != nil {
		second := time.Duration(*t.o.TimeScale * float64(time.Second))
		poll, watch = min(max(10*second, 100*time.Millisecond), poll), min(max(second, 10*time.Millisecond), watch)
	}
	s := *t.scenario
	s.Receivers = slices.Clone(s.Receivers)
	for i := range s.Receivers {
		s.Receivers[i].Callback = true // webhooks are registered with their kind
	}
	var err error
	t.engine, err = load.New(load.Options{
		URL: address, Key: t.o.Key, Run: t.run, Scenario: &s, History: t.facts, Recorder: report.NewRecorder(time.Now()),
		Receiver: t.receiver, Transport: t.transport, Poll: poll, Watch: watch, Recheck: stays,
	})
	if err != nil {
		return err
	}
	if err := t.engine.Prepare(ctx); err != nil {
		return err
	}
	t.account = collect.Account{Client: t.engine.Accounts()[0].Client()}
	return nil
}

// playAll plays all kinds at once, but the one that takes the service down after
// all others. A service that stays away ends the whole tour.
func (t *tour) playAll(ctx context.Context) []Row {
	defer t.engine.Close()
	var kinds []*kindPlay
	for plan := t.scenario.Plan(); ; {
		in, ok := plan.Next()
		if !ok {
			break
		}
		t.tickets.Store(in.N + int64(in.Tickets) - 1)
		if t.o.Kinds == nil || slices.Contains(t.o.Kinds, in.Kind) {
			kinds = append(kinds, &kindPlay{tour: t, intent: in, Row: Row{Kind: in.Kind, Expected: cmp.Or(expectations[in.Kind], client.Succeeded)}})
		}
	}
	t.progress = startProgress(t.o.Progress, kinds)
	defer t.progress.stop()
	t.facts.see = t.progress.see
	for _, stopping := range []bool{false, true} {
		var round sync.WaitGroup
		for _, k := range kinds {
			if k.stopsService() == stopping {
				round.Go(func() {
					k.play(ctx)
					t.progress.finish(k.Kind, k.OK())
				})
			}
		}
		round.Wait()
	}
	rows := make([]Row, len(kinds))
	for i, k := range kinds {
		rows[i] = k.Row
	}
	return rows
}
