// Package tour plays a scenario with one job of each work kind and says for each kind
// what was expected and what came: by what the client saw and what the judge says of
// it. Flags and exit codes are the caller's.
package tour

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

//go:embed tour.yaml
var text []byte

// DefaultPatience is how long the end of a delivery is waited for.
const DefaultPatience = time.Minute

// How the tour deals with time. Leads are counted on this machine's clock.
const (
	outageLead   = 8 * time.Second  // how far ahead the job is put that the service is stopped for
	stays        = time.Second      // how long something must stay as it is
	awayPatience = 10 * time.Second // with a service that does not answer
	busyPatience = 90 * time.Second // with one that asks to come back later
	overdue      = 10 * time.Second // how late a try to deliver may be
	cancelTries  = 5                // how often a lost race against a quick job is run again
	leaveLimit   = 10 * time.Second
	judgeLimit   = time.Minute
	sample       = 100 // jobs of which everything is read: more than there are
)

// Outage takes the service down and brings it back when the given moment has
// passed.
type Outage func(ctx context.Context, until time.Time) (OutageTimes, error)

// OutageTimes are the moments of an outage: fully stopped, about to be started, and
// ready again.
type OutageTimes struct{ Down, Restarted, Ready time.Time }

// Options say what is toured and how. The trial's say where; what is played there is
// the tour's.
type Options struct {
	trial.Options
	Kinds    []string // nil: all
	Timeout  time.Duration
	Patience time.Duration // with the end of each delivery
	Outage   Outage        // nil: the service is not ours to stop
}

// errTimeUp ends the tour at its timeout.
var errTimeUp = errors.New("the tour's time is up")

// tour is one Run under way.
type tour struct {
	o           Options
	scenario    *scenario.Scenario // with all that is toured
	trial       *trial.Trial
	tickets     map[int64]string // kinds of what is played at once
	unreachable string           // why the service cannot deliver to the receiver
	down        atomic.Bool      // on purpose
	outage      *OutageTimes     // nil: there was none
}

// Run tours the service. An error means that nothing was judged.
func Run(ctx context.Context, o Options) (*Result, error) {
	began := time.Now()
	t := &tour{o: o, tickets: map[int64]string{}}
	var err error
	if t.o.URL, err = load.ServiceURL(o.URL); err != nil {
		return nil, err
	}
	if err := t.choose(o.Kinds); err != nil {
		return nil, err
	}
	if t.o.Out, err = os.MkdirTemp("", "forgerun-tour-"); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(t.o.Out) }()
	var watching sync.WaitGroup
	defer watching.Wait()
	limited, cancel := context.WithTimeoutCause(ctx, o.Timeout, errTimeUp)
	defer cancel()
	touring, abort := context.WithCancelCause(limited)
	defer abort(nil)
	defer t.leave(ctx, began)
	if err := t.prepare(touring); err != nil {
		return nil, err
	}
	anonymous, err := client.New(client.Config{URL: t.o.URL, MaxTries: 1})
	if err != nil {
		return nil, err
	}
	watching.Go(func() { t.watch(touring, anonymous, abort) })
	live := t.trial.Live()
	defer live.Stop()
	err = t.trial.Drive(touring)
	timeUp := errors.Is(err, errTimeUp)
	if err != nil && !timeUp {
		return nil, err
	}
	judging, stop := context.WithTimeout(ctx, judgeLimit)
	defer stop()
	verdict, err := t.trial.Judge(judging)
	if err != nil {
		return nil, err
	}
	stories, err := read(filepath.Join(t.o.Out, trial.HistoryFolder), t.trial.Accounts()[0].Webhooks)
	if err != nil {
		return nil, err
	}
	return &Result{Rows: t.rows(stories, verdict, timeUp), Took: time.Since(began)}, nil
}

// choose reads the scenario of the kinds; nil: of all.
func (t *tour) choose(kinds []string) error {
	s, err := scenario.Parse("tour.yaml", text)
	if err != nil {
		return err
	}
	s.Drain = t.o.Timeout
	t.scenario = only(s, func(kind string) bool { return kinds == nil || slices.Contains(kinds, kind) })
	return nil
}

// only is the scenario with one job of each kind that is kept.
func only(s *scenario.Scenario, keep func(kind string) bool) *scenario.Scenario {
	kept := *s
	kept.Mix, kept.Jobs = nil, 0
	for _, w := range s.Mix {
		w.Kinds = slices.DeleteFunc(slices.Clone(w.Kinds), func(kind string) bool { return !keep(kind) })
		if len(w.Kinds) > 0 {
			kept.Mix = append(kept.Mix, w)
			kept.Jobs += int64(len(w.Kinds))
		}
	}
	return &kept
}

func kindsOf(s *scenario.Scenario) (kinds []string) {
	for _, w := range s.Mix {
		kinds = append(kinds, w.Kinds...)
	}
	return kinds
}

// alone reports whether a kind is played after all others.
func (t *tour) alone(kind string) bool {
	return kind == "CANCEL_DURING_RUN" || kind == "SCHEDULED_LATE_RECOVERY" && t.o.Outage != nil
}

// prepare makes the trial ready. A service that refuses to deliver to the receiver is
// toured without one.
func (t *tour) prepare(ctx context.Context) error {
	t.o.Scenario = only(t.scenario, func(kind string) bool { return !t.alone(kind) })
	plan := t.o.Scenario.Plan()
	for in, ok := plan.Next(); ok; in, ok = plan.Next() {
		for n := range in.Tickets {
			t.tickets[in.N+int64(n)] = in.Kind
		}
	}
	t.o.Sample, t.o.DeliveryLogs, t.o.Overdue, t.o.Recheck, t.o.Choose, t.o.Then = sample, true, overdue, stays, t.answer, t.playAlone
	for {
		t.trial = trial.New(t.o.Options)
		err := t.trial.Prepare(ctx)
		if err == nil {
			return nil
		}
		err = errors.Join(err, t.trial.Close())
		var problem *client.Problem
		if t.unreachable != "" || !errors.As(err, &problem) ||
			!slices.ContainsFunc(problem.Violations, func(v client.Violation) bool { return v.Pointer == "/url" }) {
			return err
		}
		t.unreachable = problem.Violations[0].Detail
		t.o.Scenario.Receivers = nil
		if err := os.RemoveAll(filepath.Join(t.o.Out, trial.HistoryFolder)); err != nil {
			return err
		}
	}
}

const callback = "callback" // the receiver of callbacks

// answer gives the tries of a kind's own job its receiver's answers in turn. What
// a webhook gets of other jobs is answered at once.
func (t *tour) answer(name string, ticket int64, try int) scenario.Answer {
	if name != callback && name != receiverName(t.tickets[ticket]) {
		return scenario.Answer{}
	}
	for _, r := range t.scenario.Receivers {
		if r.Name == name {
			return r.Answers[min(try, len(r.Answers))-1]
		}
	}
	return scenario.Answer{}
}

// playAlone plays what others would disturb, or what would disturb them.
func (t *tour) playAlone(ctx context.Context, e *load.Engine) error {
	t.o.Scenario.Drain = t.o.Patience // the jobs have ended
	for n, kind := range slices.DeleteFunc(kindsOf(t.scenario), func(kind string) bool { return !t.alone(kind) }) {
		s := only(t.scenario, func(k string) bool { return k == kind })
		s.Jobs, s.Seed = cancelTries, s.Seed+1+uint64(n) // with keys of their own
		plan := s.Plan()
		for in, ok := plan.Next(); ok && ctx.Err() == nil; in, ok = plan.Next() {
			in.N = e.Tickets() + 1
			if kind == "SCHEDULED_LATE_RECOVERY" {
				if err := t.playAcrossOutage(ctx, e, in); err != nil {
					return err
				}
				break
			}
			if e.Play(ctx, in) != client.Succeeded {
				break // else it had ended before it could be canceled, which is no difference
			}
		}
	}
	return context.Cause(ctx)
}

// playAcrossOutage lets the job's time pass while the service is down.
func (t *tour) playAcrossOutage(ctx context.Context, e *load.Engine, in scenario.Intent) error {
	in.Ahead = outageLead
	due, over := time.Now().Add(in.Ahead), make(chan struct{})
	go func() {
		defer close(over)
		e.Play(ctx, in)
	}()
	defer func() { <-over }()
	if err := load.Sleep(ctx, stays); err != nil { // until it is accepted
		return err
	}
	t.down.Store(true)
	defer t.down.Store(false)
	defer e.Reconnect()
	times, err := t.o.Outage(ctx, due.Add(stays))
	t.outage = &times
	return err
}

// watch ends the tour when the service stays away or busy. It asks without a key.
func (t *tour) watch(ctx context.Context, c *client.Client, abort context.CancelCauseFunc) {
	for good := time.Now(); load.Sleep(ctx, stays) == nil; {
		_, err := c.Job(ctx, uuid.Nil.String())
		_, away := errors.AsType[*client.NoAnswerError](err)
		refused, busy := errors.AsType[*client.Problem](err)
		busy = busy && (refused.Status == http.StatusTooManyRequests || refused.Status > http.StatusInternalServerError)
		switch since := time.Since(good); {
		case t.down.Load() || !away && !busy:
			good = time.Now()
		case away && since > awayPatience:
			abort(fmt.Errorf("the service at %s stopped answering during the tour: %w", t.o.URL, err))
		case busy && since > busyPatience:
			abort(fmt.Errorf("the service at %s stays busy: %w", t.o.URL, err))
		}
	}
}

// leave cancels the jobs that have not ended and removes the webhooks, also when the
// tour was interrupted while a submission was on its way.
func (t *tour) leave(ctx context.Context, began time.Time) {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	_ = t.trial.Close()
	accounts := t.trial.Accounts()
	if len(accounts) == 0 {
		return
	}
	if interrupted {
		_ = load.Sleep(ctx, stays) // what the service has taken is in the list then
	}
	a := accounts[0]
	for _, w := range a.Webhooks {
		_ = a.Client.DeleteWebhook(ctx, w.ID)
	}
	for j, err := range a.Client.Jobs(ctx, client.JobFilter{CreatedAfter: began.Add(-time.Minute), PageSize: 100}) {
		if err != nil {
			return
		}
		if t.trial.Owns(j.CorrelationID) && !j.Final() {
			_, _ = a.Client.Cancel(ctx, j.JobID) // it may have ended meanwhile
		}
	}
}
